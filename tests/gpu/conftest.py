"""Fixtures of the tests that need an NVIDIA GPU: `./launch.sh test gpu` runs them.

`launch.sh` sets CLOZE_TEST_GPU, and then tests/conftest.py leaves JAX the GPU and the CPU.
"""

import os

import jax
import pytest

from tests.pretrain.conftest import random_batch, runs, stores  # noqa: F401 (fixtures)


@pytest.fixture(scope="session")
def gpu():
    """Return the first GPU; skip the test where there is none, or where the suite uses the CPU."""
    if "CLOZE_TEST_GPU" not in os.environ:
        pytest.skip("the suite uses the CPU: ./launch.sh test gpu")
    try:
        return jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
