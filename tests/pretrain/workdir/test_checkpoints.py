"""A restored checkpoint is what was saved: damage is found and skipped, another model is refused."""

import contextlib
import dataclasses
import gc
import json
import pathlib
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from pretrain.config import FORMAT, Adafactor, Checkpoint, Mesh, to_json
from pretrain.mesh.replica_check import compute_fingerprint
from pretrain.mesh.sharding import make_mesh, make_state_shardings
from pretrain.settings.overrides import ConfigError
from pretrain.training.new_workdir import start_workdir
from pretrain.training.optimizers import make_optimizer
from pretrain.training.state import init_state
from pretrain.workdir import checkpoints as checkpoints_module
from pretrain.workdir.checkpoint_record import FILE, seal_record
from pretrain.workdir.checkpoints import Checkpoints, DamagedCheckpoint
from pretrain.workdir.orbax_manager import move_aside
from pretrain.workdir.read_params import restore_params

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def collected():
    """Collect garbage, so that what Orbax leaves after a failed read is reported here and not in a
    later test.
    """
    yield
    gc.collect()


def abstract_and_placed(run, sizes=(1, 1, 1)):
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    init = partial(
        init_state,
        build(run.model),
        run.data.objective,
        make_optimizer(run.optimizer, 10),
        run.train.seed,
    )
    abstract = jax.eval_shape(init)
    return init, abstract, make_state_shardings(abstract, mesh)


def make_state(run, step, sizes=(1, 1, 1)):
    init, _, placed = abstract_and_placed(
        dataclasses.replace(run, train=dataclasses.replace(run.train, seed=step)), sizes
    )
    state = jax.jit(init, out_shardings=placed)()
    state = state.replace(
        optimizer=jax.tree.map(lambda leaf: leaf + jnp.asarray(step, leaf.dtype), state.optimizer)
    )
    return state.replace(step=jax.device_put(np.asarray(step, np.int32), placed.step))


@pytest.fixture(scope="module")
def saved(tmp_path_factory, request):
    """Return (run, workdir with checkpoints 1 and 2, their states on the host), written on a 2x2x2
    mesh.
    """
    run = request.getfixturevalue("module_run")
    workdir = tmp_path_factory.mktemp("run")
    states = {}
    with Checkpoints(workdir, Checkpoint(keep=3)) as checkpoints:
        for step in (1, 2):
            state = make_state(run, step, (2, 2, 2))
            states[step] = jax.device_get(state)
            checkpoints.save(state, run, "vocabulary")
            checkpoints.wait_until_saved()
    return run, workdir, states


def copy_workdir(saved, tmp_path):
    run, workdir, states = saved
    shutil.copytree(workdir, tmp_path / "run")
    return run, tmp_path / "run", states


def restore_run(run, workdir, sizes=(1, 1, 1), encoding="vocabulary", messages=None):
    _, abstract, placed = abstract_and_placed(run, sizes)
    with Checkpoints(workdir, Checkpoint(keep=3)) as checkpoints:
        return checkpoints.restore_state(
            abstract, placed, encoding, report=(messages if messages is not None else []).append
        )


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(one), other)


# ---- fingerprints ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_any_flipped_bit_changes_a_fingerprint(dtype):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3, 5, 7)) * 3).astype(jnp.dtype(dtype))
    before = int(compute_fingerprint(jnp.asarray(x)))
    for _ in range(50):
        flipped = x.copy().reshape(-1)
        place = rng.integers(flipped.size)
        if dtype == "bool":
            flipped[place] ^= True
        else:
            raw = flipped.view(np.uint8)
            raw[rng.integers(raw.size)] ^= np.uint8(1 << rng.integers(8))
        assert int(compute_fingerprint(jnp.asarray(flipped.reshape(x.shape)))) != before


def test_a_fingerprint_is_its_formula_and_knows_places():
    x = np.array([[1.5, -2.0], [0.0, 3.25]], np.float32)
    bits = x.reshape(-1).view(np.uint32).astype(np.uint64)
    assert int(compute_fingerprint(jnp.asarray(x))) == int(
        (bits * (2 * np.arange(4, dtype=np.uint64) + 1)).sum() % 2**32
    )
    assert int(compute_fingerprint(jnp.asarray(x.T))) != int(compute_fingerprint(jnp.asarray(x)))


# ---- saving and restoring ----------------------------------------------------


@pytest.mark.held_by(2)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 4, 2), (8, 1, 1)], ids=str)
def test_what_was_saved_on_one_mesh_is_restored_on_another(saved, sizes):
    run, workdir, states = saved
    state = restore_run(run, workdir, sizes)
    assert_equal(state, states[2])
    for leaf, where in zip(
        jax.tree.leaves(state), jax.tree.leaves(abstract_and_placed(run, sizes)[2]), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(where, leaf.ndim)


def test_nothing_saved_is_no_state(tmp_path, module_run):
    assert restore_run(module_run, tmp_path) is None


def arrays_of(workdir, step):
    """Return the files with the parameters' values, largest first."""
    files = [
        path
        for path in (workdir / "checkpoints" / str(step) / "params").rglob("d/*")
        if path.is_file()
    ]
    return sorted(files, key=lambda path: -path.stat().st_size)


def test_a_flipped_bit_falls_back_to_the_step_before(saved, tmp_path):
    run, workdir, states = copy_workdir(saved, tmp_path)
    for path in arrays_of(workdir, 2):
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 4
        path.write_bytes(raw)
    messages = []
    assert_equal(restore_run(run, workdir, messages=messages), states[1])
    assert "checkpoint 2 is damaged and is set aside" in messages[0]
    assert (workdir / "damaged" / "2").is_dir() and not (workdir / "checkpoints" / "2").exists()
    assert_equal(restore_run(run, workdir), states[1])


@pytest.mark.parametrize("part", ["params", "optimizer"])
def test_changed_values_are_found_even_if_the_files_are_sound(saved, tmp_path, part):
    """Orbax's own checksums cannot detect this: other values, written consistently."""
    run, workdir, states = copy_workdir(saved, tmp_path)
    shutil.rmtree(workdir / "checkpoints" / "2" / part)
    shutil.copytree(workdir / "checkpoints" / "1" / part, workdir / "checkpoints" / "2" / part)
    if part == "params":
        with pytest.raises(DamagedCheckpoint, match="is not what was saved"):
            restore_params(workdir, step=2)
    messages = []
    assert_equal(restore_run(run, workdir, messages=messages), states[1])
    assert "is not what was saved (fingerprint" in messages[0]


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("found", "named"),
    [(None, "no format number"), (FORMAT + 1, f"format {FORMAT + 1}"), (True, "format True")],
)
def test_a_checkpoint_of_another_format_is_refused_and_stays(saved, tmp_path, found, named):
    run, workdir, _ = copy_workdir(saved, tmp_path)
    path = workdir / "checkpoints" / "2" / "record" / FILE
    record = json.loads(path.read_text())["record"]
    assert record.pop("format") == FORMAT
    path.write_text(
        json.dumps(seal_record(record if found is None else record | {"format": found}))
    )
    for read in (lambda: restore_run(run, workdir), lambda: restore_params(workdir)):
        with pytest.raises(
            ConfigError, match=f"checkpoints/2 has {named}, and .* import that folder"
        ):
            read()
    assert (workdir / "checkpoints" / "2").is_dir()


def test_a_step_that_is_there_already_is_not_saved_in_silence(saved, tmp_path):
    run, workdir, _ = copy_workdir(saved, tmp_path)
    with (
        Checkpoints(workdir) as checkpoints,
        pytest.raises(OSError, match="checkpoints/2: not saved; the newest step there is 2"),
    ):
        checkpoints.save(make_state(run, 2), run, "vocabulary")


@pytest.mark.held_by(1)
@pytest.mark.parametrize("damage", ["truncate", "delete", "record", "empty"])
def test_other_damage_falls_back_too(saved, tmp_path, damage):
    run, workdir, states = copy_workdir(saved, tmp_path)
    step = workdir / "checkpoints" / "2"
    if damage == "truncate":
        for path in arrays_of(workdir, 2):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "delete":
        arrays_of(workdir, 2)[0].unlink()
    elif damage == "record":
        (path,) = [
            path
            for path in (step / "record").rglob("*")
            if b"fingerprint" in path.read_bytes() or b"crc32c" in path.read_bytes()
        ]
        path.write_bytes(
            path.read_bytes().replace(b'"step": 2', b'"step": 3').replace(b'"step":2', b'"step":3')
        )
    else:
        shutil.rmtree(step)
        step.mkdir()
    assert_equal(restore_run(run, workdir), states[1])


def test_other_processes_wait_until_a_damaged_step_is_set_aside(saved, tmp_path, monkeypatch):
    """Otherwise they list it still, and save no step up to it."""
    run, workdir, _ = copy_workdir(saved, tmp_path)
    _, abstract, placed = abstract_and_placed(run)
    waits = []

    @contextlib.contextmanager
    def wait_for_process_0():
        yield
        waits.append(checkpoints.list_steps())
        if len(waits) == 1:  # after the read of step 2 has failed
            move_aside(workdir / "checkpoints" / "2", workdir / "damaged")

    arrays_of(workdir, 2)[0].unlink()
    with Checkpoints(workdir, Checkpoint(keep=3)) as checkpoints:
        monkeypatch.setattr(checkpoints_module, "share_failures", wait_for_process_0)
        with monkeypatch.context() as patch:
            patch.setattr(jax, "process_index", lambda: 1)
            restored = checkpoints.restore_state(abstract, placed, "vocabulary", lambda line: None)
        assert int(restored.step) == 1 and checkpoints.list_steps() == [1]
        checkpoints.save(make_state(run, 2), run, "vocabulary")
        checkpoints.wait_until_saved()
        assert checkpoints.list_steps() == [2, 1]


def test_no_sound_checkpoint_is_an_error_not_a_fresh_start(saved, tmp_path):
    run, workdir, _ = copy_workdir(saved, tmp_path)
    for step in (1, 2):
        for path in arrays_of(workdir, step):
            path.unlink()
    with pytest.raises(DamagedCheckpoint, match="none of the checkpoints"):
        restore_run(run, workdir)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: dataclasses.replace(run, model=dataclasses.replace(run.model, mlp=128)),
         "mlp/down/kernel was saved as"),
        (lambda run: dataclasses.replace(run, model=dataclasses.replace(run.model, scan=False)), "absent"),
        (lambda run: dataclasses.replace(run, optimizer=Adafactor()), "the checkpoint's optimizer's values do not fit"),
    ],
)  # fmt: skip
def test_another_model_or_optimizer_is_refused_and_nothing_is_set_aside(
    saved, tmp_path, change, message
):
    run, workdir, _ = copy_workdir(saved, tmp_path)
    with pytest.raises(ConfigError) as caught:
        restore_run(change(run), workdir)
    assert message in str(caught.value)
    assert not (workdir / "damaged").exists()


def test_another_vocabulary_is_refused(saved):
    run, workdir, _ = saved
    with pytest.raises(ConfigError, match="another encoding"):
        restore_run(run, workdir, encoding="other")


def test_only_the_newest_are_retained(tmp_path, module_run):
    with Checkpoints(tmp_path, Checkpoint(keep=2)) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(make_state(module_run, step), module_run, "vocabulary")
        checkpoints.wait_until_saved()
        assert checkpoints.list_steps() == [3, 2]


# ---- for the other verbs -----------------------------------------------------


def test_parameters_alone(saved):
    run, workdir, states = saved
    seen, step, params = restore_params(workdir)
    assert (seen, step) == (run, 2)
    assert_equal(params, states[2].params)
    assert_equal(restore_params(workdir, step=1)[2], states[1].params)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 7; there are \[1, 2\]"):
        restore_params(workdir, step=7)
    with pytest.raises(FileNotFoundError, match="not a workdir"):
        restore_params(workdir / "nowhere")


def test_reading_steps_over_damage_and_changes_nothing(saved, tmp_path):
    _, workdir, states = copy_workdir(saved, tmp_path)
    for path in arrays_of(workdir, 2):
        path.unlink()
    before = sorted(str(path) for path in pathlib.Path(workdir).rglob("*"))
    messages = []
    _, step, params = restore_params(workdir, report=messages.append)
    assert step == 1 and "checkpoint 2 is damaged" in messages[0]
    assert_equal(params, states[1].params)
    assert sorted(str(path) for path in pathlib.Path(workdir).rglob("*")) == before
    with pytest.raises(DamagedCheckpoint, match="checkpoint 2 is damaged"):
        restore_params(workdir, step=2)


class FakeVocabulary:
    fingerprint = "vocabulary"

    @property
    def artefacts(self):
        return {"vocabulary": self.save}

    def save(self, folder):
        pathlib.Path(folder).mkdir()


def test_a_workdir_begins_whole_or_not_at_all(tmp_path, module_run):
    params = make_state(module_run, 5).params
    start_workdir(
        tmp_path / "run", module_run, params, FakeVocabulary(), origin={"from": "a folder"}
    )
    assert (tmp_path / "run" / "config.json").read_text() == to_json(module_run)
    state = restore_run(module_run, tmp_path / "run")
    assert int(state.step) == 0
    assert_equal(state.params, jax.device_get(params))
    with pytest.raises(FileExistsError, match="not empty"):
        start_workdir(tmp_path / "run", module_run, params, FakeVocabulary())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
