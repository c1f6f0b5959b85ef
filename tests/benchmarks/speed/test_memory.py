"""A variant of benchmarks/speed/memory.py has the bound that `plan` computes of its program."""

import types
from unittest import mock

import pytest

import pretrain.config
from benchmarks.speed import memory
from pretrain.mesh import sharding
from pretrain.plan import compile as plan_compile
from pretrain.plan import hlo, roofline, topology, work
from pretrain.training import program

pytestmark = pytest.mark.fast


@pytest.fixture
def compile_as(monkeypatch):
    """Return compile_as(text), after which a variant is compiled to it; `plan` counts work."""

    def replace_compiler(text):
        compiled = types.SimpleNamespace(text=text, needed_bytes=3 * 2**30)
        compiled.memory_sizes = text and {"temp": 2**30, "peak": 2 * 2**30}
        for module, name, value in (
            (pretrain.config, "load", None),
            (sharding, "make_mesh", None),
            (topology, "make_tpu_machine", None),
            (program, "make_program", None),
            (hlo, "HloModule", None),
            (plan_compile, "compile_update", compiled),
            (work, "count_work", work.Work(1, 2.0, 2**30, [])),
            (roofline, "compute_roofline", types.SimpleNamespace(bound_seconds=0.25)),
        ):
            spec = getattr(module, name)
            function = mock.create_autospec(spec, return_value=value or mock.MagicMock())
            monkeypatch.setattr(module, name, function)

    return replace_compiler


def test_a_variant_that_fits_has_the_bound_of_its_work(compile_as):
    compile_as("HloModule step")
    found = memory.measure_variant("gpt2", "v5e:4x4", [], True, True)
    sizes = {"temporary": 1.0, "peak": 2.0, "moved": 1.0}
    assert found == {"fits": True, "bound": 250.0, "kernels": "XLA"} | sizes
    assert roofline.compute_roofline.call_args.args[:4] == (1, 2.0, 2**30, [])


def test_a_variant_that_does_not_fit_says_what_it_needs(compile_as):
    compile_as(None)
    found = memory.measure_variant("gpt2", "v5e:4x4", [], True, True)
    assert found == {"kernels": "XLA", "needed": 3.0, "fits": False}
