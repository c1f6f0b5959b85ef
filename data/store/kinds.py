"""The kinds of token stores: what a manifest's entries say that its documents are."""

import os
from collections.abc import Mapping
from typing import Any

from data.corpus.paths import as_path, is_remote
from data.members import import_member
from data.source import SPLITS
from data.store.checksums import check_sizes
from data.store.manifest import CHECKSUMS_FOLDER, EXAMPLE_ENTRIES, read_manifest
from data.store.reader import Store
from data.store.user_cache import copy_to_cache

# {entry of a manifest: class that reads such a store}; the first entry counts. A store without any
# of them has plain documents.
KINDS = {
    "music": "data.music.music_store:MusicStore",
    "images": "data.images.image_store:ImageStore",
    "captions": "data.images.captioned_store:CaptionedStore",
    **dict.fromkeys(sorted(EXAMPLE_ENTRIES), "data.examples.example_store:ExampleStore"),
}


def open_source(path: Any) -> Store:
    """Open the store in a folder, as the kind of store that its manifest says.

    Raises the exceptions of `Store.open`, and ValueError for an empty path.
    """
    if not os.fspath(path):
        raise ValueError(
            "data.store is empty; data.store=STORE names a token store, which "
            "`prepare SOURCE... --output STORE` writes"
        )
    return find_store_class(read_manifest(as_path(path))).open(path)


def find_store_class(manifest: Mapping[str, Any]) -> type[Store]:
    """Return the class of the store that a manifest describes."""
    for entry, kind in KINDS.items():
        if entry in manifest:
            return import_member(kind)
    return Store


def open_without_documents(path: Any) -> Store:
    """Open a store whose vocabulary or classes can be read, but none of its documents.

    The sizes of all files are checked. Of a remote store, only the vocabulary or the classes are
    copied to this machine.

    Raises the exceptions of `Store.open`.
    """
    given = as_path(path)
    manifest = read_manifest(given)
    folder, files = given / manifest["generation"], manifest["files"]
    check_sizes(folder, files)
    if is_remote(given):
        of_documents = (*SPLITS, CHECKSUMS_FOLDER)
        copied = {name: files[name] for name in files if name.split("/")[0] not in of_documents}
        folder = copy_to_cache(folder, manifest, copied)
    return find_store_class(manifest)(given, manifest, folder)
