"""What holds for each decoder: its cache is the plain loop, and packed texts are read alone."""

import jax
import numpy as np

from models.generation.decoding import continue_prompts, unstack_model


def check_continuation(model, params, prompts_BL, length_B, length, scan=False, plain=None):
    """Check that each token that is written is the likeliest of a call of `plain` (`model` if none
    is given) on the whole row; return what is written.
    """
    written = (model, params) if scan else unstack_model(model, params)
    found = continue_prompts(*written, prompts_BL, length_B, length=length)
    score = jax.jit(lambda tokens: (plain or model).apply({"params": params}, tokens))
    row = np.arange(len(prompts_BL))
    tokens = np.pad(prompts_BL, ((0, 0), (0, length)))
    for t in range(length):
        tokens[row, length_B + t] = np.asarray(score(tokens))[row, length_B + t - 1].argmax(-1)
    for b, ids in enumerate(found.tolist()):
        assert ids == tokens[b, length_B[b] : length_B[b] + length].tolist()
    assert len(np.unique(found)) > 3
    return found


def check_packed_texts(model, params, tokens_BL):
    """Check that other tokens of a first text change no logit of a second one in its row; return
    the logits of both and of the rows as one text.
    """
    is_second_L = np.arange(tokens_BL.shape[1]) >= 7
    segment_ids = np.broadcast_to(1 + is_second_L, tokens_BL.shape).astype(np.int32)
    run = jax.jit(lambda tokens: model.apply({"params": params}, tokens, segment_ids))
    changed = np.where(is_second_L, tokens_BL, 49 - tokens_BL)
    found, other = np.array(run(tokens_BL)), np.array(run(changed))
    np.testing.assert_array_equal(found[:, 7:], other[:, 7:])
    assert (np.abs(found - other)[:, :7].max(-1) > 1e-3).all()
    alone = np.array(jax.jit(model.apply)({"params": params}, tokens_BL))
    assert (np.abs(found - alone)[:, 8:].max(-1) > 1e-4).any()
    return found, alone
