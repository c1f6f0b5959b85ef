"""Locate the files of a token store."""

import pathlib

from data.store.reader import read_manifest


def generation_folder(store) -> pathlib.Path:
    """Return the folder of the generation that the manifest of a store names."""
    return pathlib.Path(store) / read_manifest(pathlib.Path(store))["generation"]
