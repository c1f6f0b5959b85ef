"""The options of `prepare`, which the manifest of a store records."""

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

from data.vocabulary.layouts import DEFAULT_LAYOUT, LAYOUTS, check_training

if TYPE_CHECKING:
    from data.cleaning.settings import CleaningSettings

# The fields of an article in their order (Zellers et al. 2019, section 3.1).
ARTICLE_FIELDS = ("domain", "date", "authors", "headline", "body")
# {kind of document: names of its fields, unless --field names others}.
DEFAULT_FIELDS = {"pair": "source,target", "fields": ",".join(ARTICLE_FIELDS)}
FIELD_NAME = re.compile(r"\w+")
# {option: its default, which is None here, and its other value}.
CHOICES = {
    "on_bad_record": ("refuse", "skip"),
    "on_unknown": ("count", "refuse"),
    "soft_mask": ("lose", "keep"),
}
# Options that a manifest has only where they are not the default: older manifests lack them.
SPARSE_OPTIONS = frozenset(
    {
        *("validation", "file_format", "on_bad_record"),
        *("character_coverage", "byte_fallback", "split_digits", "cleaning"),
        *("held_out_by", "clusters", "on_unknown", "soft_mask"),
    }
)


@dataclasses.dataclass(frozen=True)
class PrepareRequest:
    """The options of `prepare` on which the store depends.

    Attributes:
      sources: SOURCEs of the command line, see data/corpus/sources.py.
      vocabulary: path of a released or saved vocabulary; None: the next eight options train one.
      vocab_size: number of ids, special tokens and sentinels included.
      layout: layout of the special tokens, see data/vocabulary/layouts.py.
      algorithm: unigram, bpe, byte_bpe or words.
      lowercase: whether the text is case-folded.
      character_coverage: share of the sample's characters that have an id, for unigram and bpe;
        None: those that data/vocabulary/characters.py chooses.
      byte_fallback: whether other characters are written by ids of their bytes, not as unknown.
      split_digits: whether each digit is a token of its own.
      sample_size: most bytes of text on which the vocabulary is trained.
      held_out: share of the documents in the held-out split; 0 for none.
      validation: SOURCEs whose documents are the held-out split, instead of a share of `sources`;
        None: there are none.
      held_out_by: field of the records; those with the same value are held out together; None: the
        text of a document decides.
      clusters: file that says which of these values are one family; None: each is its own.
      document: how a file is divided into documents; see data/corpus/sources.py.
      field: name of the field with the text, or the names, separated by commas, of the two fields
        of a pair or of the fields of an article.
      file_format: format of all files of the sources; None: the ends of their names decide.
      on_bad_record: `skip` leaves out lines of files that are no record, and counts them;
        None: such lines are errors.
      on_unknown: `refuse` makes a character without an id an error; None: it becomes the unknown
        token, and is counted.
      soft_mask: `keep` leaves the lower case of FASTA and FASTQ, which marks repeats; None: it
        becomes capitals.
      rates: mixture rate of each source; None: by `temperature`.
      temperature: a source is sampled in proportion to its training tokens to this power: 1 is in
        proportion to the tokens, 0 is uniform. Multilingual BERT used 0.7 (Devlin et al. 2018,
        release notes). The training sample of the vocabulary has the same mixture.
      cleaning: which documents are dropped; None: none are.
    """

    sources: tuple[str, ...]
    vocabulary: str | None = None
    vocab_size: int = 32768
    layout: str = DEFAULT_LAYOUT
    algorithm: str = "unigram"
    lowercase: bool = False
    character_coverage: float | None = None
    byte_fallback: bool = False
    split_digits: bool = False
    sample_size: int = 10_000_000
    held_out: float = 0.01
    validation: tuple[str, ...] | None = None
    held_out_by: str | None = None
    clusters: str | None = None
    document: str = "file"
    field: str = "text"
    file_format: str | None = None
    on_bad_record: str | None = None
    on_unknown: str | None = None
    soft_mask: str | None = None
    rates: tuple[float, ...] | None = None
    temperature: float = 1.0
    cleaning: "CleaningSettings | None" = None

    def check(self) -> None:
        """Raise ValueError for an option that is not valid, or options that exclude each other."""
        if not self.sources:
            raise ValueError("no source given")
        names = self.list_sources()
        if len(set(names)) < len(names):
            raise ValueError(f"a source is given twice: {' '.join(names)}")
        if self.validation is not None and self.held_out:
            raise ValueError(
                f"--held-out {self.held_out} with --validation {' '.join(self.validation)}: the "
                "held-out split is either a share of the sources or these files; give one of them"
            )
        if not 0 <= self.held_out < 1:
            raise ValueError(
                f"--held-out {self.held_out}: a share of the documents, from 0 up to but not 1"
            )
        if self.rates is not None and len(self.rates) != len(self.sources):
            raise ValueError(
                f"{len(self.rates)} rates for {len(self.sources)} sources: one for each"
            )
        if self.rates is not None and not all(
            rate > 0 and math.isfinite(rate) for rate in self.rates
        ):
            raise ValueError(f"--rates {self.rates}: positive numbers")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"--temperature {self.temperature}: 0 or more")
        if self.algorithm not in LAYOUTS:
            raise ValueError(f"--algorithm {self.algorithm}: {' or '.join(LAYOUTS)}")
        if self.layout not in LAYOUTS[self.algorithm]:
            raise ValueError(
                f"--layout {self.layout}: {' or '.join(LAYOUTS[self.algorithm])}, "
                f"for --algorithm {self.algorithm}"
            )
        if self.document == "pair" and len(set(self.field.split(","))) != 2:
            raise ValueError(
                f"--field {self.field}: pairs have two fields, source and target: "
                "--field source,target"
            )
        if self.document == "fields":
            _check_field_names(self.field)
            if self.vocabulary is None and self.algorithm != "byte_bpe":
                raise ValueError(
                    f"--document fields with --algorithm {self.algorithm}: the tokens of fields "
                    "are added to a vocabulary of bytes; add --layout "
                    f"{' or '.join(LAYOUTS['byte_bpe'])}, or name a --vocabulary"
                )
        for name, (default, other) in CHOICES.items():
            if (value := vars(self)[name]) not in (None, other):
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} {value}: {default} or {other}")
        if self.held_out_by is not None and not self.held_out:
            raise ValueError(
                f"--held-out-by {self.held_out_by} with --held-out 0, which holds nothing out"
            )
        if self.sample_size < 1:
            raise ValueError(f"--sample-size {self.sample_size}: a number of bytes")
        if self.vocabulary is None:
            check_training(self.algorithm, self.list_training())
        if self.cleaning is not None:
            self.cleaning.check()

    def list_training(self) -> dict[str, Any]:
        """Return the options of `SentencePieceOptions` that byte_bpe and words do not have."""
        names = ("character_coverage", "byte_fallback", "split_digits")
        return {name: getattr(self, name) for name in names}

    @property
    def article_fields(self) -> tuple[str, ...]:
        """Names of the fields of an article, in order; () if documents are not articles."""
        return tuple(self.field.split(",")) if self.document == "fields" else ()

    def list_sources(self) -> tuple[str, ...]:
        """Return all sources: those for training, then those for validation."""
        return (*self.sources, *(self.validation or ()))

    def compute_rates(self, sizes: list[int]) -> list[float]:
        """Return the mixture rates of the sources, which sum to 1, given their sizes in tokens."""
        try:
            weights = self.rates or [size**self.temperature if size else 0.0 for size in sizes]
            total = sum(weights)
        except OverflowError:
            total = math.inf
        if math.isinf(total):  # relative to the largest, all are at most 1
            numbers, power = (self.rates, 1.0) if self.rates else (sizes, self.temperature)
            weights = [(number / max(numbers)) ** power if number else 0.0 for number in numbers]
            total = sum(weights)
        return [weight / (total or 1) for weight in weights]


def _check_field_names(field: str) -> None:
    """Raise ValueError unless a --field names at least two fields of an article, each once."""
    names = field.split(",")
    bad = [name for name in names if not FIELD_NAME.fullmatch(name)]
    if bad or len(set(names)) != len(names) or len(names) < 2:
        reason = f"{bad[0]!r} is no name" if bad else "these are not"
        raise ValueError(
            f"--field {field}: {reason}; articles have two or more fields, each named once by "
            f"letters, digits and _: --field {','.join(ARTICLE_FIELDS)}"
        )
