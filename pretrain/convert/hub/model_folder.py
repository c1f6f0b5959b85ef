"""A folder that is read, on this machine or from the Hugging Face Hub."""

import dataclasses
import os
from typing import Any

from data.corpus.hub.address import SCHEME, is_address
from pretrain.convert.hub.snapshot import fetch_repository

PAGE = "https://huggingface.co/"


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A folder that is read.

    Attributes:
      origin: what a run records of it, as JSON values.
    """

    path: str
    origin: dict[str, Any]


def find_folder(place: str, weights: bool = True) -> ModelFolder:
    """Return the folder at a path; download the folder of an address hf://...

    Args:
      place: the path or the address.
      weights: whether the model is needed, and not only its tokenizer.

    Raises:
      HubError, ValueError: as `fetch_repository`; or the place is a page of the Hub.
    """
    if place.startswith(PAGE):
        raise ValueError(f"{place}: is a page; write {SCHEME}USER/NAME for its repository")
    if not is_address(place):
        return ModelFolder(place, {"folder": os.path.basename(os.path.abspath(place))})
    snapshot = fetch_repository(place, weights)
    origin = {
        "folder": str(snapshot),
        "repository": snapshot.address.repository,
        "revision": snapshot.address.revision,
        "commit": snapshot.commit,
    }
    return ModelFolder(str(snapshot.folder), origin)
