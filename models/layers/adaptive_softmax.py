"""Adaptive softmax and adaptive embeddings (Grave et al. 2016; Baevski and Auli 2018, section 3).

Ids are sorted by frequency and divided into clusters at cutoffs. The head's softmax
gives the probabilities of the first cluster's ids; an id of cluster i has the head's probability of
the cluster times the probability within it. With a divisor, the embeddings of cluster i are
divisor ** i times narrower than the states, and projected. Input and output share
one table.

D width   E width of a table's embeddings   V vocabulary   F ids of the first cluster
C clusters after the first   ... any leading axes
"""

import itertools
from collections.abc import Sequence

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from models.layers.linear import Dense, Embed, Initializer
from models.layers.ops import PLAIN, Ops

NORMAL = nn.initializers.normal(0.02)


def list_id_ranges(vocab: int, cutoffs: Sequence[int]) -> list[tuple[int, int]]:
    """Return the range of ids [start, end) of each cluster.

    Raises:
      ValueError: the cutoffs do not ascend between 0 and `vocab`.
    """
    edges = [0, *cutoffs, vocab]
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise ValueError(
            f"clusters.cutoffs={','.join(map(str, cutoffs))} for {vocab} ids: they must ascend "
            f"between 0 and {vocab}"
        )
    return list(itertools.pairwise(edges))


class ClusterLogits(flax.struct.PyTreeNode):
    """The logits of each softmax of an adaptive softmax.

    head: of the F ids of the first cluster and of the C other clusters, float32 [..., F + C].
    tails: of the ids within each other cluster, float32 [..., size].
    """

    head: jax.Array
    tails: tuple[jax.Array, ...]

    @property
    def num_first(self) -> int:
        """The number of ids of the first cluster, F."""
        return self.head.shape[-1] - len(self.tails)

    @property
    def vocab(self) -> int:
        """The number of ids, V."""
        return self.num_first + sum(tail.shape[-1] for tail in self.tails)

    def compute_log_probs(self) -> jax.Array:
        """Return the log-probabilities of all ids, float32 [..., V]."""
        head = jax.nn.log_softmax(self.head)
        if not self.tails:
            return head
        log_probs = [head[..., : self.num_first]]
        for i, tail in enumerate(self.tails, self.num_first):
            log_probs.append(head[..., i, None] + jax.nn.log_softmax(tail))
        return jnp.concatenate(log_probs, axis=-1)


class ClusterTable(nn.Module):
    """The embeddings of one cluster, projected to the width of the states.

    size: number of ids.   embedding_width: E.   width: D.
    """

    size: int
    embedding_width: int
    width: int
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the table and the projection."""
        self.token_embedding = Embed(self.size, self.embedding_width, NORMAL, self.ops)
        self.embedding_projection = ClusterProjection(self.embedding_width, self.width, self.ops)

    def __call__(self, ids: jax.Array) -> jax.Array:
        """Return the embeddings [..., D] of ids [...] that count from the cluster's first."""
        return self.embedding_projection(self.token_embedding(ids))


class ClusterProjection(nn.Module):
    """A matrix [E, D] that projects embeddings to states and, transposed, states back.

    embedding_width: E.   width: D.
    """

    embedding_width: int
    width: int
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the matrix."""
        shape = self.embedding_width, self.width
        self.kernel = self.param("kernel", nn.initializers.normal(0.01), shape)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x [..., E] @ kernel, [..., D]."""
        return self.ops.linear(x, self.kernel, 1, None)

    def project_back(self, x: jax.Array) -> jax.Array:
        """Return x [..., D] @ kernel^T, [..., E]."""
        return self.ops.linear(x, self.kernel.T, 1, None)


class AdaptiveHead(nn.Module):
    """What the output adds to the tables: biases, the clusters' own rows, the head's projection.

    Dai et al. 2019 do not share the projection of the first cluster with the input.
    """

    vocab: int
    width: int
    num_clusters: int
    projects: bool
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the parameters."""
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocab,))
        if self.num_clusters:
            self.clusters = Dense(
                self.num_clusters, kernel_init=NORMAL, out_dtype=jnp.float32, ops=self.ops
            )
        if self.projects:
            init = nn.initializers.normal(0.01)
            self.projection = Dense(self.width, use_bias=False, kernel_init=init, ops=self.ops)


class AdaptiveEmbedding(nn.Module):
    """Input embeddings [V, D] and, with the same tables, log-probabilities of the output.

    vocab: V.
    width: D.
    cutoffs: the first id of each cluster but the first; (): one softmax over all ids.
    divisor: the embeddings of cluster i have the width D / divisor ** i.
    embedding_init: of the one table that there is with a divisor of 1.
    """

    vocab: int
    width: int
    cutoffs: tuple[int, ...] = ()
    divisor: int = 1
    embedding_init: Initializer = NORMAL
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the tables and what the output adds to them.

        Raises:
          ValueError: the cutoffs do not ascend below `vocab`, or the width does not divide.
        """
        D, ranges = self.width, list_id_ranges(self.vocab, self.cutoffs)
        if D % self.divisor ** len(self.cutoffs):
            raise ValueError(
                f"clusters.divisor={self.divisor}: a width of {D} does not divide by "
                f"{self.divisor} for each of the {len(self.cutoffs)} clusters after the first"
            )
        self.projects = self.divisor > 1
        if self.projects:
            self.cluster = [
                ClusterTable(end - start, D // self.divisor**i, D, self.ops)
                for i, (start, end) in enumerate(ranges)
            ]
        else:
            self.token_embedding = Embed(self.vocab, D, self.embedding_init, self.ops)
        self.lm_head = AdaptiveHead(self.vocab, D, len(self.cutoffs), self.projects, self.ops)

    def __call__(self, ids: jax.Array) -> jax.Array:
        """Return the embeddings [..., D] of int32 ids [...]; NaN for an id outside of the table."""
        if not self.projects:
            return self.token_embedding(ids)
        # An id of another cluster reads a row that is not used: NaN would reach the gradients.
        first, *others = self.cluster
        embedded = first(jnp.minimum(ids, first.size - 1) if others else ids)
        for (start, end), table in zip(list_id_ranges(self.vocab, self.cutoffs)[1:], others):
            row = jnp.maximum(ids - start, 0)
            own = table(row if end == self.vocab else jnp.minimum(row, table.size - 1))
            embedded = jnp.where((ids >= start)[..., None], own, embedded)
        return embedded

    def attend(self, x: jax.Array) -> jax.Array:
        """Return the log-probabilities of all ids, float32 [..., V], of states x [..., D].

        Their softmax is themselves, so a loss may take them as logits.
        """
        return self.score_clusters(x).compute_log_probs()

    def score_clusters(self, x: jax.Array) -> ClusterLogits:
        """Return the logits of each softmax, of states x [..., D]."""
        bias_V = self.lm_head.bias.astype(jnp.float32)
        head = self.score_cluster(x, 0, bias_V)
        if self.cutoffs:
            projected = self.lm_head.projection(x) if self.projects else x
            head = jnp.concatenate([head, self.lm_head.clusters(projected)], axis=-1)
        num_clusters = len(self.cutoffs)
        tails = tuple(self.score_cluster(x, i, bias_V) for i in range(1, num_clusters + 1))
        return ClusterLogits(head, tails)

    def score_cluster(self, x: jax.Array, i: int, bias_V: jax.Array) -> jax.Array:
        """Return the logits of the ids of cluster i, float32 [..., size]."""
        start, end = list_id_ranges(self.vocab, self.cutoffs)[i]
        if not self.projects:
            table = self.token_embedding.embedding[start:end]
            return self.ops.add_bias(self.ops.linear(x, table.T, 1, jnp.float32), bias_V[start:end])
        own = self.cluster[i]
        projected = (
            self.lm_head.projection(x) if i == 0 else own.embedding_projection.project_back(x)
        )
        return self.ops.add_bias(own.token_embedding.attend(projected), bias_V[start:end])
