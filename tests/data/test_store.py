def test_smoke(store,t5_store):
    s=store.split('train'); print(s.tokens[:10], s.document_starts, s.sources, store.fingerprint)
    store.verify(); t5_store.verify()
    assert len(s.document_starts)==37
    assert t5_store.vocabulary.sentinels[0]==163
