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
    store: str = ""  # Folder (or gs:// path) that `prepare` wrote.
    # What is learned: its class makes batches of rows, and says which.
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
    batch_size: int = 32  # [rows] Size of the global batch, over all hosts.
    # Share of each source of the store, in the order of its manifest; (): the manifest's own shares.
    rates: tuple[float, ...] = ()
    # [threads] CPU threads that build batches, on each host. They wait for each other, so more help only where reading waits.
    threads: int = 1
    # [batches] Batches that wait ready, on each host. Small ones are made several at once and may be more.
    prefetch: int = 2
    # A store with damaged bytes: refuse it, or skip only the documents that they lie in.
    on_corrupt: Literal["refuse", "skip"] = "refuse"
