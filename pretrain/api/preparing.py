"""Turn text into a token store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from data.corpus.paths import check_local
from data.prepare.request import DEFAULT_FIELDS, LAYOUTS, PrepareRequest
from pretrain.api.arguments import format_path, list_paths

if TYPE_CHECKING:
    from data.prepare.build import PreparedStore

# Options of a vocabulary that is trained, not allowed with a finished one.
TRAINING = (
    *("vocab_size", "layout", "algorithm", "lowercase", "character_coverage", "byte_fallback"),
    *("split_digits", "sample_size"),
)
SWITCHES = ("lowercase", "byte_fallback", "split_digits")


def prepare(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    workers: int | None = None,
    overwrite: bool = False,
    beam_runner: Callable[..., Any] | None = None,
    **options: Any,
) -> PreparedStore:
    """Write a token store, unless the same one exists, and return it.

    Args:
      sources: one source of text or several, such as "builtin" or "texts.txt" (docs/data.md). A
        script that prepares more than 2 MB of them needs `if __name__ == "__main__":`, because each
        worker imports it; or `workers=1`.
      output: the folder of the store, on this machine.
      workers: number of processes, on which the store does not depend; None: one per core.
      overwrite: replace another store in that folder.
      beam_runner: a `data.prepare.beam_runner.BeamRunner`, for more than one machine.
      options: fields of `data.prepare.request.PrepareRequest`, such as `vocab_size=4096`. None is
        the default of each.

    Raises:
      ValueError: for bad options, sources or texts.
      FileExistsError: the folder holds another store.
    """
    from data.prepare.build import prepare_store
    from pretrain.host.console import make_console

    output = format_path(output)
    check_local(output, "the store")
    request = make_request(tuple(list_paths(sources)), options)
    console = make_console(stderr=True)
    return prepare_store(
        request,
        output,
        workers=workers,
        overwrite=overwrite,
        report_progress=lambda line: console.print(line, soft_wrap=True),
        console=console,
        beam_runner=beam_runner,
    )


def make_request(sources: tuple[str, ...], options: dict[str, Any]) -> PrepareRequest:
    """Return the request of `prepare`: what is not given follows from the rest.

    Raises:
      ValueError: there is no such option, or options contradict each other.
    """
    known = [field.name for field in dataclasses.fields(PrepareRequest) if field.name != "sources"]
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"prepare has no option {unknown[0]!r}; it has {', '.join(known)}")
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("on_bad_record") == "refuse":
        del given["on_bad_record"]  # the default, which manifests do not record
    for name in SWITCHES:
        if given.get(name) is False:
            del given[name]  # the default, which a finished vocabulary does not contradict
    if given.get("vocabulary") and (training := [name for name in TRAINING if name in given]):
        flags = ", ".join("--" + name.replace("_", "-") for name in training)
        raise ValueError(f"--vocabulary names a finished vocabulary; {flags} would train one")
    if given.get("layout") in LAYOUTS["byte_bpe"]:
        given.setdefault("algorithm", "byte_bpe")
    if given.get("validation"):
        given["validation"] = tuple(list_paths(given["validation"]))
        given.setdefault("held_out", 0.0)
    if "document" in given:
        given.setdefault("field", DEFAULT_FIELDS.get(given["document"], "text"))
    if given.get("vocabulary"):
        given["vocabulary"] = format_path(given["vocabulary"])
    request = PrepareRequest(sources=sources, **given)
    if request.vocabulary is None:
        return request
    request.check()  # before a download
    return dataclasses.replace(request, vocabulary=_find_vocabulary(request.vocabulary))


def _find_vocabulary(place: str) -> str:
    """Return the path of a vocabulary; download it from an address hf://..."""
    if not place.startswith("hf://"):
        return place
    from pretrain.convert.hub.model_folder import find_folder

    return find_folder(place, weights=False).path
