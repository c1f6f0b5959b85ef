"""Sequence to sequence by LSTMs: plain, and with Bahdanau's and Luong's attention.

An encoder reads the source (`models.layers.recurrent.lstm_encoder`), a decoder starts from its last
state and writes the target (`models.layers.recurrent.lstm_decoder`, with the equations of the
papers: Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015).

Reversed sources are an encoder that reads from the end (`direction="backward"`): its states stay in
the order of the tokens. Several packed pairs may share a row, each with states of its own.

B batch   L target length   M source length   D embedding width   C cells   V vocabulary   R rows of
a decoding step: B, or B times the beams of a beam search
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from models.layers.cache import DecodingStep
from models.layers.dropout import Dropout
from models.layers.encoder_decoder import PackedEncoderDecoder
from models.layers.linear import Dense, Embed, Initializer
from models.layers.recurrent.lstm_decoder import LstmDecoder
from models.layers.recurrent.lstm_encoder import EncodedSource, LstmEncoder


def draw_uniform(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Return numbers between -0.1 and 0.1 (Luong et al. 2015, section 4.1)."""
    return jax.random.uniform(key, shape, dtype, -0.1, 0.1)


INIT: Initializer = draw_uniform  # of all weights but biases, which are 0


class Seq2SeqLstm(PackedEncoderDecoder):
    """The encoder, the decoder, and the logits."""

    config: Seq2SeqLstmConfig

    def setup(self) -> None:
        """Make encoder, decoder and output."""
        c, ops = self.config, self.ops
        parts = partial(dict, dropout=c.dropout, kernel_init=INIT, ops=ops)
        embedding = partial(Embed, c.vocab, c.embedding, INIT, ops)
        self.source_embedding, self.target_embedding = embedding(), embedding()
        self.encoder = LstmEncoder(c.width, c.depth, c.direction, **parts())
        self.decoder = LstmDecoder(
            c.width, c.depth, c.direction, c.score, c.mlp, c.input_feeding, remat=c.remat, **parts()
        )
        self.drop = Dropout(c.dropout, ops=ops)
        self.lm_head = Dense(c.vocab, kernel_init=INIT, out_dtype=jnp.float32, ops=ops)

    def encode(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        train: bool = False,
        encoder_segment_ids: jax.Array | None = None,
    ) -> EncodedSource:
        """Return the encoded source."""
        x_BMD = self.source_embedding(encoder_token_ids)
        return self.encoder(x_BMD, encoder_attention_mask, encoder_segment_ids, train)

    def decode(
        self,
        source: EncodedSource,
        encoder_attention_mask: jax.Array,
        decoder_token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
        segment_ids: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, C]."""
        if segment_ids is None:
            ones = jnp.ones(encoder_attention_mask.shape, jnp.int32)
            segment_ids = jnp.ones_like(decoder_token_ids), ones
        source_ids_BM = jnp.where(encoder_attention_mask, segment_ids[1], -1)
        x_BLD = self.drop(self.target_embedding(decoder_token_ids), deterministic=not train)
        y_BLC = self.decoder(source, source_ids_BM, x_BLD, segment_ids[0], train, step)
        return self.drop(y_BLC, deterministic=not train)

    def compute_logits(self, y_BLC: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.lm_head(y_BLC)
