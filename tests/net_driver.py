"""What one version of the code computes from given Hugging Face folders and text: the half of
tests/net.py that speaks this tree's names.

    python tests/net_driver.py JOB.json       (in the root of the tree)

JOB.json: {"cases": names of CASES, [] for all, "folders": {model: its Hugging Face folder},
"sentences": texts, "output": folder, "hlo": bool}. For each case, output/CASE.npz holds "batch/N",
the arrays of the first step's batch in the order of the batch spec; "gradient/NAME", of that step;
"params/NAME", after 3 steps; "loss". NAME is a Hugging Face name. After a
rename, use the new names here; the job, the cases and the names in the output stay, because an older
tree reads the same job.
"""

import dataclasses
import json
import os
import pathlib
import re
import sys

os.environ |= {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
sys.path.insert(0, os.getcwd())

import jax
import jax.numpy as jnp
import numpy as np
import optax

from data import batch_spec
from data.objectives import (
    AnswerSpan,
    CausalLm,
    Classification,
    Denoising,
    Distillation,
    MaskedLm,
    MultipleChoice,
    PrefixLm,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    Seq2Seq,
    SpanCorruption,
    Tagging,
    Text2Text,
)
from data.pipeline import Stream
from data.store.reader import Store
from models import build
from models.config.choice import ChoiceConfig
from models.config.distilbert import DistilBertConfig
from models.config.gpt3 import Gpt3Config
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.config import Adafactor, AdamW, Lamb
from pretrain.convert.read_write import (
    find_converter,
    open_model,
)
from pretrain.families import find_family
from pretrain.kernels.hash_dropout import drop_by_hash
from pretrain.mesh.sharding import make_batch_sharding, make_mesh, make_replicated_sharding
from pretrain.training.losses import LossOptions
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.program import make_program
from pretrain.training.schedules import make_learning_rate
from pretrain.training.state import create_state, init_params
from pretrain.training.step import make_train_step
from tests import given
from tests.net_stores import STORES, TAGS

STEPS = 3
# No clipping by the norm of all gradients: its sum is in the order of our own names. Epsilon is as
# large as a small gradient, so that Adam does not turn a gradient that is rounding noise, such as that
# of a key projection's bias, into a whole step.
# whole step.
ADAMW = AdamW(learning_rate=1e-3, warmup_steps=1, epsilon=1e-3, max_grad_norm=0)
LAMB = Lamb(learning_rate=1e-3, warmup_steps=1, epsilon=1e-3, max_grad_norm=0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One run. folder: the model whose weights it begins with; store: how its store is made, a key
    of net_stores.STORES.
    """

    folder: str
    objective: object
    store: str = "text"
    optimizer: object = ADAMW
    model: dict = dataclasses.field(
        default_factory=dict
    )  # fields that differ from the imported configuration
    train: dict = dataclasses.field(default_factory=dict)
    head: type | None = None  # of a fine-tuned model on the imported encoder
    teacher: bool = False


MASKED = dict(length=32, max_predictions=6)
CASES = {
    "bert": Case("bert", SentencePair(**MASKED)),
    "bert_packed": Case("bert", MaskedLm(**MASKED, rows="packed"), train=dict(microbatches=2)),
    "bert_unrolled": Case("bert", MaskedLm(**MASKED, rows="documents"), model=dict(scan=False, remat=True)),
    "roberta": Case("roberta", MaskedLm(**MASKED, rows="sentences")),
    "albert": Case("albert", SentenceOrder(**MASKED), optimizer=LAMB),
    "electra": Case("electra", ReplacedToken(**MASKED, rows="packed")),
    "distilbert": Case("distilbert", MaskedLm(**MASKED, rows="documents")),
    "distillation": Case("bert", Distillation(**MASKED, rows="documents"), teacher=True),
    "t5": Case("t5", SpanCorruption(inputs=40), optimizer=Adafactor(learning_rate=0.1, warmup_steps=1)),
    "t5_v1_1": Case("t5_v1_1", PrefixLm(length=40), optimizer=dataclasses.replace(ADAMW, scale_by_param_rms=True), model=dict(remat=True)),
    "t5_text2text": Case("t5", Text2Text(length=40, target_length=30), store="answers"),
    "bart": Case("bart", Denoising(length=40)),
    "marian": Case("marian", Seq2Seq(length=40, target_length=40), store="pairs", train=dict(label_smoothing=0.1)),
    "gpt": Case("gpt", CausalLm(length=40, end_of_text=False)),
    "gpt2": Case("gpt2", CausalLm(length=40)),
    "gpt3": Case("gpt2", CausalLm(length=40), model=dict(window=5)),
    "bert_classifier": Case("bert_classifier", Classification(length=40), store="labels"),
    "electra_classifier": Case("electra_classifier", Classification(length=40), store="labels"),
    "tagger": Case("bert", Tagging(length=40), store="tags", head=TaggerConfig),
    "span_reader": Case("roberta", AnswerSpan(length=40, question=12, stride=4, separators=2), store="questions", head=SpanReaderConfig),
    "multiple_choice": Case("distilbert", MultipleChoice(length=40, choices=2), store="choices", head=ChoiceConfig),
}  # fmt: skip


# ---- a run -------------------------------------------------------------------


def start_case(case, folder, store):
    """Return (the run of a case, its initial parameters, its vocabulary)."""
    opened = open_model(folder)
    imported = make_starting_run(opened.config)
    params, missing, unused = opened.load_params(imported.model, make_initializer(imported))
    assert (missing, unused) == ((), ()), (missing, unused)
    model, params = configure_model(case, opened, imported.model, params)
    run = dataclasses.replace(
        imported,
        model=model,
        data=dataclasses.replace(
            imported.data, objective=case.objective, batch_size=8, store=str(store)
        ),
        optimizer=case.optimizer,
        train=dataclasses.replace(
            imported.train, steps=STEPS, compute_dtype="float32", **case.train
        ),
        evaluate=dataclasses.replace(imported.evaluate, every=0, metrics=()),
        checkpoint=dataclasses.replace(imported.checkpoint, every=STEPS),
    )
    return run, params, opened.vocabulary


def configure_model(case, opened, model, params):
    """Return (model configuration, parameters) of the folder, with another configuration, a head or
    a teacher.
    """
    if case.teacher:
        shared = {
            field.name: getattr(model, field.name)
            for field in dataclasses.fields(DistilBertConfig)
            if hasattr(model, field.name)
        }
        student = DistilBertConfig(**shared | dict(depth=1, teacher_depth=model.depth))
        return student, find_family(student).distillation.init_params(student, model, params)
    if case.head:
        own = {"labels": TAGS} if case.head is TaggerConfig else {}
        config = case.head(encoder=model, dropout=0.0, **own)
        return config, given_params(config, case.objective)
    if case.folder == "gpt2" and case.model:
        shared = {
            field.name: getattr(model, field.name)
            for field in dataclasses.fields(Gpt3Config)
            if hasattr(model, field.name)
        }
        config = Gpt3Config(**shared | case.model)
        return config, given_params(config, case.objective)
    if case.model:
        model = dataclasses.replace(model, **case.model)
        like = jax.eval_shape(lambda: init_params(build(model), case.objective, 0))
        params, _ = opened.converter.from_hf(
            model, opened.tensors, jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), like)
        )
    return model, params


def given_params(model, objective):
    """Return parameters whose export has given values, of a model that is not imported."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(lambda: init_params(build(model), objective, 0)))
    return tree.unflatten(
        given.fill_tensors(
            [leaf.shape for leaf in leaves], lambda arrays: to_hf(model, tree.unflatten(arrays))
        )
    )


def to_hf(model, params):
    """Return a tree like the parameters under Hugging Face names."""
    if isinstance(model, Gpt3Config):  # transformers has no bands, but the same names
        model = dataclasses.replace(model, window=model.length)
    return find_converter(model).to_hf(model, jax.device_get(params))


def three_steps(run, params, stream):
    """Return (gradients of the first step, parameters after the last, loss of the first) of the
    training step.
    """
    mesh = make_mesh(run.mesh)
    program = make_program(run, mesh)
    record = optax.GradientTransformation(  # its state is the gradient, which passes unchanged
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda grads, state, params=None: (grads, grads),
    )
    optimizer = optax.chain(record, make_run_optimizer(run))
    how = dict(
        seed=run.train.seed,
        microbatches=run.train.microbatches,
        options=LossOptions(
            compute_dtype=run.train.compute_dtype, label_smoothing=run.train.label_smoothing
        ),
    )
    step = make_train_step(
        program.model,
        program.loss,
        optimizer,
        make_learning_rate(run.optimizer, run.train.steps),
        **how,
    )
    step = jax.jit(
        step,
        in_shardings=(make_replicated_sharding(mesh), make_batch_sharding(mesh)),
        out_shardings=make_replicated_sharding(mesh),
    )
    with jax.set_mesh(mesh):
        state = jax.jit(create_state, static_argnums=1)(params, optimizer)
        for number in range(STEPS):
            state, metrics = step(state, stream.build_batch(number))
            assert not metrics["skipped"]
            if number == 0:
                grads, loss = jax.device_get((state.optimizer[0], metrics["loss"]))
    return grads, state.params, loss


def optimised_hlo(run):
    """Return the optimised HLO of the train step without names of files, lines, functions and
    parameters.
    """
    mesh = make_mesh(run.mesh)
    program = make_program(run, mesh)
    with jax.set_mesh(mesh):
        text = program.train_step.lower(program.describe_state(), program.batch).compile().as_text()
    text = re.sub(r", metadata=\{[^}]*\}", "", text)
    text = re.sub(r"^HloModule [^,]*", "HloModule", text)
    return re.sub(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*", "\n", text)


def run_case(name, job, work):
    """Compute one case and write its arrays."""
    case, work = CASES[name], work / name
    work.mkdir(parents=True)
    run, params, vocabulary = start_case(case, job["folders"][case.folder], work / "store")
    STORES[case.store](work / "store", vocabulary, job["sentences"])
    stream = Stream(Store.open(work / "store"), run.data, seed=run.train.seed)
    batch = stream.build_batch(0)
    found = {
        f"batch/{i}": batch[key]
        for i, key in enumerate(batch_spec.compute_shapes(run.data.objective, run.data.batch_size))
    }
    grads, params, found["loss"] = three_steps(run, params, stream)
    for kind, tree in (("gradient", grads), ("params", params)):
        found |= {f"{kind}/{key}": value for key, value in to_hf(run.model, tree).items()}
    np.savez(pathlib.Path(job["output"]) / f"{name}.npz", **found)
    if job["hlo"]:
        text = optimised_hlo(run)
        (pathlib.Path(job["output"]) / f"{name}.hlo.txt").write_text(text)


def dropout_masks():
    """Return the output and the gradient of dropout on ones, for a few keys, shapes and rates."""
    keys, found = ([0, 0], [1, 2], [0xFFFFFFFF, 0x80000001]), {}
    for shape, rate in (((7,), 0.5), ((3, 65), 0.1), ((2, 1, 9, 33), 0.999)):

        @jax.jit
        def drop_ones(key, shape=shape, rate=rate):
            out, backward = jax.vjp(lambda x: drop_by_hash(x, key, rate, shape), jnp.ones(shape))
            return jnp.stack([out, *backward(jnp.full(shape, 2.0))])

        found |= {
            f"mask/{number}/{shape}/{rate}": drop_ones(jnp.array(key, jnp.uint32))
            for number, key in enumerate(keys)
        }
    return found


def main(path):
    job = json.loads(pathlib.Path(path).read_text())
    output = pathlib.Path(job["output"])
    np.savez(output / "dropout.npz", **dropout_masks())
    for name in job["cases"] or CASES:
        run_case(name, job, output / "work")


if __name__ == "__main__":
    main(sys.argv[1])
