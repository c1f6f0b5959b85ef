"""What a run reads: the token store, the objective and the size of the global batch."""

from dataclasses import dataclass
from typing import Literal

from data.objectives import (
    AnswerSpan,
    CausalLm,
    Classification,
    Denoising,
    Distillation,
    MaskedLm,
    MultipleChoice,
    PrefixLm,
    Regression,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    Seq2Seq,
    SpanCorruption,
    Tagging,
    Text2Text,
)


@dataclass(frozen=True)
class Data:
    store: str = ""  # folder (or gs:// path) that `prepare` wrote
    objective: (
        MaskedLm
        | SentencePair
        | SpanCorruption
        | SentenceOrder
        | CausalLm
        | PrefixLm
        | Seq2Seq
        | ReplacedToken
        | Denoising
        | Distillation
        | Classification
        | Regression
        | Tagging
        | MultipleChoice
        | Text2Text
        | AnswerSpan
    ) = MaskedLm()
    batch_size: int = 32  # rows of the global batch, over all hosts
    rates: tuple[
        float, ...
    ] = ()  # a rate for each source of the store; () takes those of its manifest
    threads: int = 1  # CPU threads that build batches, on each host; they wait for each other, so more help only where reading waits
    prefetch: int = 2  # batches that wait ready, on each host; small ones, which are made several at once, may be more
    on_corrupt: Literal["refuse", "skip"] = (
        "refuse"  # a store with damaged bytes, or only the documents that they lie in
    )
