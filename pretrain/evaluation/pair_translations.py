"""Scores of the targets that a model writes for the sources of held-out pairs.

B batch   L input length   T generated length   Q pairs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from data.examples.text_pairs import decode_output
from data.rows.translation import ParallelRows
from pretrain.evaluation.generated_answers import GeneratedAnswerEvaluator, make_generation_fn
from pretrain.evaluation.task_metrics import score_written_texts
from pretrain.mesh.device_feed import place_shared_rows

WIDTH_STEP = 8  # the input length is a multiple of this


def make_text_writers(
    model: Any, mesh: jax.sharding.Mesh, stream: Any
) -> tuple[PairTranslator | None, GeneratedAnswerEvaluator | None]:
    """Return the one of the two that writes texts for the rows of a split, in its place."""
    if isinstance(stream.table, ParallelRows):
        return PairTranslator(model, mesh, stream), None
    return None, GeneratedAnswerEvaluator(model, mesh, stream)


class PairTranslator:
    """Writes the target of each pair of a split, greedily, and scores the texts.

    At most `target_length` tokens of the objective are written. Everything is computed in float32,
    as in `predict`, on the mesh of the parameters. References are the targets as the vocabulary
    spells them, without what it does not know; pairs that do not fit a row are left out.
    """

    def __init__(self, model: Any, mesh: jax.sharding.Mesh, stream: Any) -> None:
        """Compile the generation.

        Args:
          stream: the `data.pipeline.Stream` of a split of pairs, whose table is a `ParallelRows`.
        """
        self.mesh, self.stream = mesh, stream
        self.generate_tokens = make_generation_fn(model, mesh, stream.data, stream.vocabulary)

    def score_pairs(
        self, metrics: Sequence[str], params: Any, begin: Callable[[], None]
    ) -> dict[str, float]:
        """Return the metrics of the texts that the model writes, by name."""
        vocabulary, texts, references = self.stream.vocabulary, [], []
        for sources, targets in self._read_batches():
            begin()
            inputs_BL, valid_BL = self._pad_sources(sources)
            written_BT = jax.device_get(
                self.generate_tokens(
                    params, *(place_shared_rows(self.mesh, x) for x in (inputs_BL, valid_BL))
                )
            )
            texts += [decode_output(vocabulary, ids) for ids in written_BT[: len(sources)].tolist()]
            references += [decode_output(vocabulary, ids) for ids in targets]
        return score_written_texts(metrics, texts, references)

    def _read_batches(self) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Yield (ids of the sources, ids of the targets) of the pairs in their order."""
        table, tokens = self.stream.table, self.stream.split.tokens
        lengths_Q2 = np.diff(table.end_Q2, axis=0) - 1  # without </s>
        size = self.stream.data.batch_size
        for first in range(0, len(lengths_Q2), size):
            begins, lengths = (
                array[first : first + size].T.tolist() for array in (table.start_Q2, lengths_Q2)
            )
            sources, targets = (
                [tokens[begin : begin + length].tolist() for begin, length in zip(*side)]
                for side in zip(begins, lengths)
            )
            yield sources, targets

    def _pad_sources(self, sources: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return sources with their </s>, and the mask of real ids: [B, L], of one length L."""
        lengths_Q = np.diff(self.stream.table.end_Q2[:, 0])
        L = -(-int(lengths_Q.max()) // WIDTH_STEP) * WIDTH_STEP
        shape = self.stream.data.batch_size, min(L, self.stream.objective.length)
        inputs_BL = np.full(shape, self.stream.vocabulary.pad, np.int32)
        for row, ids in zip(inputs_BL, sources):
            row[: len(ids) + 1] = [*ids, self.stream.vocabulary.eos]
        lengths = [len(ids) + 1 for ids in sources] + [1] * (shape[0] - len(sources))
        return inputs_BL, np.arange(shape[1]) < np.array(lengths)[:, None]
