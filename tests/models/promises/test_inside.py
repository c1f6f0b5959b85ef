"""What `features` and `attention` read of every family: depth + 1 hidden states, the embeddings first."""

from functools import partial

import jax
import numpy as np

from models.activations import capture_activations
from tests.models.promises.cases import for_cases, has_decoder, has_encoder

POSITION = 2


@for_cases()
def test_layer_0_is_the_embeddings(case):
    """One other token changes its own embedding and no other, and more than that in each layer."""
    method = "encode" if hasattr(case.model, "encode") else "compute_states"
    mask = np.ones((3, 12), bool) if case.mask is None else case.mask
    rest = (mask,) if method == "encode" else ()
    capture = jax.jit(partial(capture_activations, case.model, method=method))
    ids = case.batch[case.ids]
    other = ids.copy()
    other[0, POSITION] = (ids[0, POSITION] + 7) % 50
    seen, changed = (capture(case.params, each, *rest) for each in (ids, other))
    assert len(seen.hidden_states) == case.config.depths[0] + 1
    tokens = ids.shape[1]
    moved = [
        np.abs(np.asarray(a) - np.asarray(b)).reshape(len(ids), tokens, -1).max(-1) > 1e-6
        for a, b in zip(seen.hidden_states, changed.hidden_states, strict=True)
    ]
    assert moved[0][0].tolist() == [n == POSITION for n in range(tokens)]
    assert all(layer[0].sum() > 1 for layer in moved[1:])
    assert not any(layer[1:].any() for layer in moved)


@for_cases(of=lambda name: has_encoder(name) and has_decoder(name))
def test_a_decoder_beside_an_encoder_has_states_of_its_own(case):
    encode = jax.jit(partial(capture_activations, case.model, method="encode"))
    decode = jax.jit(partial(capture_activations, case.model, method="decode"))
    memory = encode(case.params, case.batch[case.ids], case.mask).output
    seen = decode(case.params, memory, case.mask, case.batch["labels"])
    assert len(seen.hidden_states) == case.config.depths[-1] + 1
