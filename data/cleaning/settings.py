"""What `prepare` drops from a corpus and why: the settings and the reasons that a store records."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

HELD_OUT = "held-out"  # a test set that is the held-out part of the same store
NEAR_THRESHOLD = 0.72  # (1/14)^(1/8): 14 groups of 8 hashes, see data/cleaning/minhash.py
TEST_WORDS = 13  # words in a row; Brown et al. 2020, appendix C
FORMS = ("NFC", "NFKC")
DUPLICATES = ("exact", "near")
COPY, NEAR_COPY = "copies of another document", "near copies of another document"


class Condition(NamedTuple):
    """What a field of a record must be, or must not be.

    Attributes:
      field: its name, or a path such as a.b.
      values: any of them fulfils the condition.
      keeps: whether documents without such a value are dropped; else, those with one.
    """

    field: str
    values: tuple[str, ...]
    keeps: bool

    def drops_value(self, value: str | None) -> bool:
        """Return whether a record with this value, or without the field (None), is dropped."""
        return (value in self.values) != self.keeps

    @property
    def reason(self) -> str:
        """Why a document is dropped."""
        verb = "is not" if self.keeps else "is"
        return f"documents whose field {self.field} {verb} {' or '.join(self.values)}"


@dataclasses.dataclass(frozen=True)
class CleaningSettings:
    """What is dropped, and the Unicode form of what stays; a store depends on it.

    Attributes:
      normalize: Unicode form of the text, NFC or NFKC; None: as it is.
      keep_where: FIELD=VALUE; other records are dropped. Several values of one field are
        alternatives, and conditions on several fields must all hold.
      drop_where: FIELD=VALUE; such records are dropped.
      min_characters, max_characters: bounds of a document's length.
      min_letters: least share of letters among the characters that are no blanks.
      drop_duplicates: exact: copies but for case, accents, blanks and quotes; near: also documents
        that share most of their runs of five words.
      near_threshold: Jaccard similarity from which most near copies are found; None: 0.72.
      decontaminate: test sets, files of text or of JSON lines, or `held-out`.
      decontaminate_words: words in a row that a training document must not share with a test set;
        None: 13.
      count_values: fields of which the store records how many documents have which value.
    """

    normalize: str | None = None
    keep_where: tuple[str, ...] = ()
    drop_where: tuple[str, ...] = ()
    min_characters: int | None = None
    max_characters: int | None = None
    min_letters: float | None = None
    drop_duplicates: str | None = None
    near_threshold: float | None = None
    decontaminate: tuple[str, ...] = ()
    decontaminate_words: int | None = None
    count_values: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ValueError for a bad setting, FileNotFoundError for a missing test set."""
        if self.normalize not in (None, *FORMS):
            raise ValueError(f"--normalize {self.normalize}: {' or '.join(FORMS)}")
        if self.drop_duplicates not in (None, *DUPLICATES):
            raise ValueError(f"--drop-duplicates {self.drop_duplicates}: {' or '.join(DUPLICATES)}")
        for name, least in (
            ("min_characters", 1),
            ("max_characters", 1),
            ("decontaminate_words", 2),
        ):
            value = vars(self)[name]
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} {value}: {least} or more")
        if self.max_characters is not None and self.max_characters < (self.min_characters or 0):
            raise ValueError(
                f"--max-characters {self.max_characters} is below --min-characters "
                f"{self.min_characters}: no document would be left"
            )
        for name in ("min_letters", "near_threshold"):
            value = vars(self)[name]
            if value is not None and not (0 < value <= 1 and math.isfinite(value)):
                raise ValueError(f"--{name.replace('_', '-')} {value}: above 0, at most 1")
        if self.near_threshold is not None and self.drop_duplicates != "near":
            raise ValueError("--near-threshold needs --drop-duplicates near")
        if self.decontaminate_words is not None and not self.decontaminate:
            raise ValueError(
                "--decontaminate-words needs --decontaminate, which names the test sets"
            )
        self.list_conditions()
        if len(set(self.count_values)) < len(self.count_values):
            raise ValueError(
                f"--count-values: a field is named twice: {' '.join(self.count_values)}"
            )
        self._check_test_sets()

    def _check_test_sets(self) -> None:
        """Raise ValueError or FileNotFoundError for a test set that cannot be read."""
        if len(set(self.decontaminate)) < len(self.decontaminate):
            raise ValueError(f"a test set is given twice: {' '.join(self.decontaminate)}")
        for name in self.decontaminate:
            if name != HELD_OUT and not pathlib.Path(name).is_file():
                raise FileNotFoundError(
                    f"--decontaminate {name}: no such file; name files of text or of JSON lines, "
                    f"or `{HELD_OUT}` for the held-out part of the store"
                )

    def list_conditions(self) -> list[Condition]:
        """Return the conditions on fields; raise ValueError for one that is not FIELD=VALUE."""
        wanted = _split_conditions("--keep-where", self.keep_where)
        dropped = _split_conditions("--drop-where", self.drop_where)
        alternatives: dict[str, list[str]] = {}
        for field, value in wanted:
            alternatives.setdefault(field, []).append(value)
        return [
            *(Condition(field, tuple(values), True) for field, values in alternatives.items()),
            *(Condition(field, (value,), False) for field, value in dropped),
        ]

    def list_fields(self) -> tuple[str, ...]:
        """Return the names of the fields that the conditions and the counts read."""
        read = (condition.field for condition in self.list_conditions())
        return tuple(dict.fromkeys([*read, *self.count_values]))

    @property
    def test_words(self) -> int:
        """Words in a row that a training document must not share with a test set."""
        return self.decontaminate_words or TEST_WORDS

    @property
    def needs_scan(self) -> bool:
        """Whether the corpus is read once more, before anything is dropped."""
        return bool(self.drop_duplicates) or HELD_OUT in self.decontaminate

    def list_reasons(self) -> list[str]:
        """Return why documents can be dropped; drops refer to a reason by its place here."""
        reasons = [condition.reason for condition in self.list_conditions()]
        if self.min_characters is not None:
            reasons.append(f"documents of fewer than {self.min_characters:,} characters")
        if self.max_characters is not None:
            reasons.append(f"documents of more than {self.max_characters:,} characters")
        if self.min_letters is not None:
            reasons.append(f"documents with less than {self.min_letters:.4g} of letters")
        if self.drop_duplicates:
            reasons.append(COPY)
        if self.drop_duplicates == "near":
            reasons.append(NEAR_COPY)
        return reasons + [self.name_contamination(name) for name in self.decontaminate]

    def name_contamination(self, test_set: str) -> str:
        """Return the reason to drop a document that shares words with a test set."""
        place = "the held-out part" if test_set == HELD_OUT else test_set
        return f"documents that share {self.test_words} words in a row with {place}"

    def describe(self) -> dict[str, Any]:
        """Return the settings that are not the default, as a manifest records them."""
        return {
            field.name: vars(self)[field.name]
            for field in dataclasses.fields(self)
            if vars(self)[field.name] != field.default
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "CleaningSettings":
        """Return the settings that `describe` returned, also after a way through JSON."""
        lists = {key: tuple(value) for key, value in description.items() if isinstance(value, list)}
        values: dict[str, Any] = description | lists
        return cls(**values)


def _split_conditions(flag: str, conditions: Sequence[str]) -> list[tuple[str, str]]:
    """Return (field, value) of each condition FIELD=VALUE."""
    pairs = []
    for condition in conditions:
        field, sign, value = condition.partition("=")
        if not field or not sign:
            raise ValueError(f"{flag} {condition}: FIELD=VALUE, such as {flag} language=en")
        pairs.append((field, value))
    return pairs
