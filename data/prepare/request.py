"""What `prepare` is asked for: kept in a store's manifest, so that the same request is recognised."""

import dataclasses
import math

from data.vocabulary.layouts import DEFAULT, LAYOUTS


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of `prepare` that its result depends on.

    sources, document, field    see data/corpus/sources.py
    vocabulary                  a released or saved one to use; None trains one by the next five
    vocab_size                  ids in all, special ones and sentinels included
    sample_size                 bytes of text, at most, that the vocabulary is trained on
    held_out                    share of the documents, 0 for none
    rates                       of the mixture, one for each source; None: source i is drawn in proportion to
    temperature                 its training tokens to this power: 1 as much as there is, 0 all alike; multilingual BERT
                                took 0.7 (Devlin et al. 2018, release notes), and so smooths its vocabulary's sample
    """

    sources: tuple[str, ...]
    vocabulary: str | None = None
    vocab_size: int = 32768
    layout: str = DEFAULT
    algorithm: str = "unigram"
    lowercase: bool = False
    sample_size: int = 10_000_000
    held_out: float = 0.01
    document: str = "file"
    field: str = "text"
    rates: tuple[float, ...] | None = None
    temperature: float = 1.0

    def check(self) -> None:
        """Raise ValueError for what cannot be meant."""
        if not self.sources:
            raise ValueError("no source given")
        if len(set(self.sources)) < len(self.sources):
            raise ValueError(f"a source is given twice: {' '.join(self.sources)}")
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
                f"--layout {self.layout}: {' or '.join(LAYOUTS[self.algorithm])}, for --algorithm {self.algorithm}"
            )
        if self.document == "pair" and len(set(self.field.split(","))) != 2:
            raise ValueError(
                f"--field {self.field}: pairs have two fields, source and target: --field source,target"
            )
        if self.sample_size < 1:
            raise ValueError(f"--sample-size {self.sample_size}: a number of bytes")

    def shares(self, sizes: list[int]) -> list[float]:
        """Rates of the sources, whose sizes are given, in the mixture; they sum to 1."""
        weights = self.rates or [size**self.temperature if size else 0.0 for size in sizes]
        return [weight / (sum(weights) or 1) for weight in weights]
