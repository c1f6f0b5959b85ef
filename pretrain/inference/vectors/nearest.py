"""The nearest of many vectors, exactly: all products, block by block on the device.

Q queries   N documents   n documents of a block   D width   K nearest
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

QUERIES, DOCUMENTS = 1_024, 65_536  # of a block: 256 MiB of products


def find_nearest(
    query_QD: np.ndarray, document_ND: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the K largest products of each query, float32 [Q, K], and their documents, int [Q, K].

    They are in descending order; of equal ones the first document comes first. K may be larger than
    N, which then is the number of columns.
    """
    K = min(K, len(document_ND))
    blocks = [
        _search_queries(query_QD[first : first + QUERIES], document_ND, K)
        for first in range(0, len(query_QD), QUERIES)
    ]
    if not blocks:
        return np.zeros((0, K), np.float32), np.zeros((0, K), np.int64)
    scores, indices = zip(*blocks, strict=True)
    return np.concatenate(scores), np.concatenate(indices)


def _search_queries(
    query_qD: np.ndarray, document_ND: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `find_nearest` for one block of queries."""
    best_qK = np.zeros((len(query_qD), 0), np.float32)
    index_qK = np.zeros((len(query_qD), 0), np.int64)
    for first in range(0, len(document_ND), DOCUMENTS):
        block_nD = document_ND[first : first + DOCUMENTS]
        found = _search_block(query_qD, block_nD, min(K, len(block_nD)))
        score_qK, place_qK = map(np.asarray, found)
        best_qK = np.concatenate([best_qK, score_qK], axis=1)
        index_qK = np.concatenate([index_qK, place_qK + first], axis=1)
        order_qK = np.argsort(-best_qK, axis=1, kind="stable")[:, :K]
        best_qK = np.take_along_axis(best_qK, order_qK, axis=1)
        index_qK = np.take_along_axis(index_qK, order_qK, axis=1)
    return best_qK, index_qK


@partial(jax.jit, static_argnames="K")
def _search_block(query_qD: jax.Array, block_nD: jax.Array, K: int) -> tuple[jax.Array, jax.Array]:
    """Return the K largest products of each query with the documents of a block, and where."""
    return jax.lax.top_k(jnp.einsum("qd,nd->qn", query_qD, block_nD, precision="highest"), K)
