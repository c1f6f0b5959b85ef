"""Files of a corpus, and the documents that are read from them."""

import gzip
import json

from data.corpus import sources


def read_documents(name, size=1 << 20, **options) -> list[str]:
    """Return all documents of a source, stripped, regardless of how it is split."""
    found = sources.resolve_source(str(name), **options)
    records = (
        record
        for piece in sources.split_source(found, size, None)
        for record in sources.read_chunk(piece)
    )
    return [record.raw.decode().strip() for record in records]


def write_file(path, contents) -> str:
    raw = contents if isinstance(contents, bytes) else contents.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return str(path)


def json_lines(*texts, field="text") -> str:
    return "".join(json.dumps({"id": i, field: text}) + "\n" for i, text in enumerate(texts))
