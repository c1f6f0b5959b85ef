"""The options of `prepare` that clean a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pretrain.settings.arguments import list_optional, list_texts
from pretrain.settings.verb_options import Group, VerbOptions, option

if TYPE_CHECKING:
    from data.cleaning.settings import CleaningSettings

CLEANING = Group(
    "cleaning", "documents that are dropped, counted by the reason and listed in the store"
)


class CleaningOptions(VerbOptions):
    """Which documents of a corpus are dropped; without any of these options, none are."""

    drop_duplicates: str | None = option(
        "exact: of documents that are equal but for case, accents, blanks and quotes, keep one; "
        "near: also of documents that share most runs of five words",
        default=None,
        group=CLEANING,
        choices=("exact", "near"),
    )
    near_threshold: float | None = option(
        "Jaccard similarity of the runs of words from which near copies are found (default: 0.72)",
        default=None,
        group=CLEANING,
        metavar="S",
    )
    decontaminate: list[str] | None = option(
        "test sets (.txt or .jsonl files, or held-out, the store's own): drop training documents "
        "that share a run of words with one",
        default=None,
        group=CLEANING,
        converter=list_optional,
        nargs="+",
        metavar="FILE",
    )
    decontaminate_words: int | None = option(
        "length of such a run (default: 13)", default=None, group=CLEANING, metavar="N"
    )
    min_characters: int | None = option(
        "drop shorter documents", default=None, group=CLEANING, metavar="N"
    )
    max_characters: int | None = option(
        "drop longer documents", default=None, group=CLEANING, metavar="N"
    )
    min_letters: float | None = option(
        "drop documents with a lower share of letters, blanks aside, such as 0.6",
        default=None,
        group=CLEANING,
        metavar="SHARE",
    )
    keep_where: list[str] | None = option(
        "drop records whose field has another value; several values of one field are alternatives",
        default=None,
        group=CLEANING,
        converter=list_texts,
        nargs="+",
        metavar="FIELD=VALUE",
    )
    drop_where: list[str] | None = option(
        "drop records whose field has this value",
        default=None,
        group=CLEANING,
        converter=list_texts,
        nargs="+",
        metavar="FIELD=VALUE",
    )
    count_values: list[str] | None = option(
        "drop nothing; record how many documents have which value of each field, which "
        "`inspect STORE` shows",
        default=None,
        group=CLEANING,
        converter=list_texts,
        nargs="+",
        metavar="FIELD",
    )
    normalize: str | None = option(
        "Unicode form of the text (default: as it is)",
        default=None,
        group=CLEANING,
        choices=("NFC", "NFKC"),
    )


def read_cleaning(options: CleaningOptions) -> CleaningSettings | None:
    """Return the settings that options ask for; None if they ask for none.

    Raises:
      ValueError: for a bad option.
      FileNotFoundError: a test set is missing.
    """
    values: dict[str, Any] = {}
    for name in CleaningOptions.__dataclass_fields__:
        if (value := vars(options)[name]) is not None:
            values[name] = tuple(value) if isinstance(value, list) else value
    if not values:
        return None
    from data.cleaning.settings import CleaningSettings

    settings = CleaningSettings(**values)
    settings.check()
    return settings
