"""Write tokenizers.json: the ids of `AutoTokenizer` of transformers for texts, from tiny exports of
ours.

    python tests/goldens/make_tokenizers.py        (needs the extra `peers`)

The pieces are kept, not the model files: a SentencePiece model is mostly its table of rules, which
the library has.
"""

import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
    "Das Café liegt an der Straße; naïve Gäste zahlten 100 €.",
    "Привет, мир! 東京は日本の首都です。",
    "the reader, the writer, the text and the words: 1, 2, 3, 10, 100, 1000",
]
TEXTS = [
    *TEXT,
    "",
    "   ",
    "  leading and trailing  ",
    "a\ttab and\u00a0no-break",
    "ＦＵＬＬ width ﬁ ½",
    "cafe\u0301 na\u00efve Stra\u00dfe \u01f3\u0334",
    "\ufeffbom zero\u200bwidth",
    "emoji 🙂👍🏽 👨‍👩‍👧",
    "▁ written out ▁",
    "\x07bell\r\nline",
    "UPPER lower MiXeD",
    "ｶﾞｷﾞ ㍿",
    "unseen: ჯ ᚠ",
]
WORDPIECE = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz0123456789.,;:!?",
    "the",
    "read",
    "word",
    "##s",
]
WORDPIECE += [f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz0123456789"] + [
    "##er",
    "##ing",
    "東",
    "京",
]


def make_vocabularies():
    """Return {name: (family, vocabulary)}."""
    from data.vocabulary.load import read_vocabulary, train_vocabulary

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vocab.txt"
        path.write_text("\n".join(WORDPIECE) + "\n", encoding="utf-8")
        wordpiece = read_vocabulary(path)
    lines = TEXT * 10
    return {
        "unigram": ("bert", train_vocabulary(lines, 110)),
        "bpe": ("bert", train_vocabulary(lines, 150, algorithm="bpe", lowercase=True)),
        "t5": ("t5", train_vocabulary(lines, 208, layout="t5")),
        "wordpiece": ("bert", wordpiece),
    }


def describe_vocabulary(vocabulary):
    """Return what a test needs to build the vocabulary again."""
    if vocabulary.kind == "wordpiece":
        return {"pieces": list(vocabulary.pieces)}
    from data.vocabulary.sentencepiece_proto import ModelProto

    model = ModelProto.FromString(vocabulary.model_bytes)
    pieces = [[piece.piece, piece.score, piece.type] for piece in model.pieces]
    return {
        "pieces": pieces,
        "type": model.trainer_spec.model_type,
        "rules": model.normalizer_spec.name,
    }


def main():
    from transformers import AutoTokenizer, __version__

    from pretrain.convert import tokenizer

    goldens = {"transformers": __version__, "texts": TEXTS, "vocabularies": {}}
    for name, (family, vocabulary) in make_vocabularies().items():
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.write_tokenizer(vocabulary, family, pathlib.Path(folder), 64)
            (pathlib.Path(folder) / "config.json").write_text(json.dumps({"model_type": family}))
            theirs = AutoTokenizer.from_pretrained(folder)
        pair = theirs("the reader", "the words")
        goldens["vocabularies"][name] = {
            "family": family,
            **describe_vocabulary(vocabulary),
            "ids": [theirs(text)["input_ids"] for text in TEXTS],
            "gap": theirs("the [MASK]. the <extra_id_0>.")["input_ids"],
            "pair": [pair["input_ids"], pair.get("token_type_ids")],
            "specials": {
                key: theirs.convert_tokens_to_ids(value)
                for key, value in theirs.special_tokens_map.items()
                if isinstance(value, str)
            },
            "size": len(theirs),
        }
    (HERE / "tokenizers.json").write_text(
        json.dumps(goldens, ensure_ascii=False, indent=None) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
