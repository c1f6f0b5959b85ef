"""Articles in `prepare`: each field is a sentence of its document, between its own two tokens.

Axes: D documents, F fields of an article, S fields that have a text, T tokens.
"""

from collections.abc import Sequence

import numpy as np

from data.corpus.record_texts import FIELD_SEPARATOR
from data.corpus.sentences import DOCUMENT_SEPARATOR
from data.vocabulary.base import Vocabulary
from data.vocabulary.field_tokens import FieldTokens, find_fields

WITHOUT_FIELD = "articles without `{}`"  # a reason that a report counts


def encode_articles(
    text: bytes, documents: np.ndarray, vocabulary: Vocabulary, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Encode articles, each field by itself.

    Args:
      text: articles of `data.corpus.record_texts.join_article`, joined by the document separator.
      documents: int64 [D], offsets of the articles.

    Returns:
      The ids, the number of ids of each field that has a text [S], the first such field of each
      article [D], and which fields each article lacks [D, F].
    """
    starts, ends, numbers_S = find_field_spans(text, documents, len(names))
    first_D = np.searchsorted(starts, documents)
    ids_T, lengths_S = vocabulary.encode_spans(text, starts, ends, np.arange(len(starts)))
    missing_DF = find_missing_fields(first_D, numbers_S, lengths_S, len(names))
    tokens = find_fields(vocabulary)
    return *wrap_fields(ids_T, lengths_S, numbers_S, [*tokens.values()]), first_D, missing_DF


def find_field_spans(
    text: bytes, documents: np.ndarray, num_fields: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the fields of articles that have a text.

    Args:
      text: articles of `data.corpus.record_texts.join_article`, joined by the document separator.
      documents: int64 [D], offsets of the articles.

    Returns:
      int64 [S] each: start and end of each field in the text, and its number from 0 to F - 1.
    """
    breaks_DF = np.flatnonzero(np.frombuffer(text, np.uint8) == FIELD_SEPARATOR[0])
    breaks_DF = breaks_DF.reshape(len(documents), num_fields - 1)
    last_D = np.append(documents[1:] - len(DOCUMENT_SEPARATOR), len(text))
    starts = np.concatenate([documents[:, None], breaks_DF + 1], axis=1).ravel()
    ends = np.concatenate([breaks_DF, last_D[:, None]], axis=1).ravel()
    numbers = np.tile(np.arange(num_fields), len(documents))
    has_text = ends > starts
    return starts[has_text], ends[has_text], numbers[has_text]


def wrap_fields(
    ids_T: np.ndarray, lengths_S: np.ndarray, numbers_S: np.ndarray, fields: Sequence[FieldTokens]
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and lengths of fields with the token that begins and the one that ends each.

    A field of which the vocabulary makes no token stays without tokens.

    Args:
      ids_T: the ids of all fields in order.
      lengths_S: the number of ids of each field.
      numbers_S: the number of each field in its article.
    """
    used_S = lengths_S > 0
    begin_S, end_S = np.array(fields, ids_T.dtype)[numbers_S].T
    stops_S = np.cumsum(lengths_S)
    # An insertion before the same offset follows the order of the arguments: ends come first.
    places = np.concatenate([stops_S[used_S], (stops_S - lengths_S)[used_S]])
    wrapped = np.insert(ids_T, places, np.concatenate([end_S[used_S], begin_S[used_S]]))
    return wrapped, lengths_S + 2 * used_S


def find_missing_fields(
    first_D: np.ndarray, numbers_S: np.ndarray, lengths_S: np.ndarray, num_fields: int
) -> np.ndarray:
    """Return bool [D, F], True for the fields that an article lacks.

    first_D: index of each article's first field.
    """
    document_S = np.searchsorted(first_D, np.arange(len(numbers_S)), "right") - 1
    missing_DF = np.ones((len(first_D), num_fields), bool)
    used_S = lengths_S > 0
    missing_DF[document_S[used_S], numbers_S[used_S]] = False
    return missing_DF
