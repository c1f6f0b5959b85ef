"""The stream of sentences, each `[CLS] words [SEP]`, in the order of reading and with each sentence
reversed.

Both streams have the same sentences at the same positions, so that a model of each direction reads
the same text at the same time (the released code of Peters et al. 2018).

B rows   N positions of a row   S sentences
"""

import dataclasses

import numpy as np

from data.rows.tables import TokenReader, WindowRows, find_source_edges, require_id, search_sorted
from data.store.split import Split
from data.vocabulary.base import Vocabulary


class FramedSentences(WindowRows):
    """Rows of `width` positions of the stream of a source's sentences.

    Rows, their order and their overlap are as in `WindowRows`, whose documents are sentences.
    """

    def __init__(self, split: Split, width: int, vocabulary: Vocabulary, shared: int = 0) -> None:
        """Compute the rows. The arguments are as for `WindowRows`."""
        starts = np.asarray(split.sentence_starts)
        # Sentences without a word are left out.
        self.token_S = starts[np.append(np.diff(starts) > 0, True)]
        self.begin_of_S = self.token_S + 2 * np.arange(len(self.token_S))
        edges = find_source_edges(split)
        edges = np.searchsorted(self.token_S, np.asarray(split.document_starts)[edges])
        sources = tuple(
            dataclasses.replace(source, documents=(int(first), int(end)))
            for source, first, end in zip(split.sources, edges[:-1], edges[1:], strict=True)
        )
        framed = dataclasses.replace(
            split, document_starts=self.begin_of_S, sentence_starts=self.begin_of_S, sources=sources
        )
        super().__init__(framed, width, shared=shared)
        self.read = TokenReader(split.tokens, vocabulary.size)
        self.cls, self.sep = require_id(vocabulary.cls), require_id(vocabulary.sep)

    def read_rows(self, row_B: np.ndarray, reverse: bool = False) -> np.ndarray:
        """Return the ids of rows, int32 [B, N]; with `reverse` of the reversed sentences.

        A reversed sentence is `[SEP] words [CLS]`, its last word first.
        """
        position_BN = self.locate_starts(row_B)[:, None] + np.arange(self.width)
        sentence_BN = search_sorted(self.begin_of_S, position_BN.ravel()) - 1
        sentence_BN = sentence_BN.reshape(position_BN.shape)
        place_BN = position_BN - self.begin_of_S[sentence_BN]
        last_BN = self.begin_of_S[sentence_BN + 1] - self.begin_of_S[sentence_BN] - 1
        if reverse:
            place_BN = last_BN - place_BN
        is_cls_BN, is_sep_BN = place_BN == 0, place_BN == last_BN
        index_BN = self.token_S[sentence_BN] + place_BN - 1
        ids_BN = self.read(np.where(is_cls_BN | is_sep_BN, self.token_S[sentence_BN], index_BN))
        ids_BN = np.where(is_cls_BN, self.cls, np.where(is_sep_BN, self.sep, ids_BN))
        return ids_BN.astype(np.int32)
