"""evaluate --workdir W: the newest checkpoint on every row of the held-out part; with --task FILE, on questions (pretrain/inference/in_context_tasks.py)."""

import dataclasses
import json

from pretrain.distributed import processes
from pretrain.evaluation.label_checks import labelled_store
from pretrain.inference import random_head
from pretrain.inference.in_context_tasks import read_questions
from pretrain.inference.line_files import sink


def add_arguments(parser):
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--step", type=int, help="a checkpoint's step; the newest good one unless given"
    )
    parser.add_argument(
        "--store", help="another token store than the run's, of the same vocabulary"
    )
    parser.add_argument(
        "--labelled",
        metavar="FILE",
        help="other labelled examples for a fine-tuned model, in the columns that it was fine-tuned from",
    )
    parser.add_argument("--split", default="heldout", choices=("heldout", "train"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    random_head.add_argument(parser)
    task = parser.add_argument_group("questions, by log-likelihood (docs/in_context.md)")
    task.add_argument(
        "--task",
        metavar="FILE",
        help='JSON lines of {"context", "choices", "answer"}, {"context", "answer"} or {"text"}',
    )
    task.add_argument(
        "--shots",
        type=int,
        default=0,
        metavar="K",
        help="answered questions in front of each (%(default)s)",
    )
    task.add_argument(
        "--examples",
        metavar="FILE",
        help="where those are drawn from; the other questions of the task unless given",
    )
    task.add_argument(
        "--delimiter", default="\\n\\n", help="between them; \\n is a new line (%(default)s)"
    )
    task.add_argument(
        "--answer-context",
        metavar="TEXT",
        help='compare with the choices behind this text alone, such as "Answer:"',
    )
    task.add_argument("--seed", type=int, default=0, help="of the draw of examples (%(default)s)")
    task.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="choices computed at once (%(default)s)",
    )
    task.add_argument(
        "--output", metavar="FILE", help="each question with its scores, as JSON lines"
    )
    processes.add_arguments(parser)


def run(args):
    if args.task:
        return run_task(args)
    if args.examples or args.output or args.shots or args.answer_context:
        raise ValueError("--shots, --examples, --answer-context and --output belong to --task FILE")
    processes.start(args)
    import jax

    if args.labelled:
        if args.store or args.split != "heldout":
            raise ValueError(
                "--labelled names the examples: neither --store nor --split goes with it"
            )
        with labelled_store(args.workdir, args.labelled) as store:
            step, _, scores = evaluate(
                args.workdir, step=args.step, store=store, allow_random_head=args.allow_random_head
            )
        store = args.labelled
    else:
        step, store, scores = evaluate(
            args.workdir,
            step=args.step,
            store=args.store,
            split=args.split,
            allow_random_head=args.allow_random_head,
        )
    if jax.process_index():
        return 0  # all have the same scores; the first tells them
    if args.json:
        print(json.dumps({"step": step, "store": str(store), "split": args.split, **scores}))
        return 0
    print(
        f"step {step:,} on the {args.split} part of {store}: {scores['rows']:,} rows, {scores['targets']:,.0f} targets"
    )
    for name, value in scores.items():
        if name not in ("rows", "targets"):
            print(f"  {name:<28}{value:.5g}")
    return 0


def evaluate(workdir, step=None, store=None, split="heldout", allow_random_head=False):
    """(step, the store's path, {name: mean}) of a checkpoint on one part of a token store. Raises as `random_head.check_head`."""
    import sys

    import jax

    from data.examples.example_store import open_source
    from data.mixed_stream import open_stream
    from data.store.salvage import told
    from data.vocabulary.load import load_vocabulary
    from models import build
    from pretrain.distributed.model_hooks import make_model_hooks
    from pretrain.distributed.sharding import make_mesh, parameter_sharding
    from pretrain.evaluation.label_checks import check_labels
    from pretrain.finetune.qa_task import settled
    from pretrain.inference.trained import open_trained
    from pretrain.overrides import ConfigError
    from pretrain.training import truncation_report
    from pretrain.training.evaluation import make_evaluator
    from pretrain.training.losses import make_loss
    from pretrain.workdir.checkpoints import read_run

    run = read_run(workdir)
    opened = open_source(store or run.data.store).verified(run.data.on_corrupt)
    if (lost := told(opened)) != told(None):
        print(f"left out of {opened.path}, for their bytes have changed: {lost}", file=sys.stderr)
    trained = load_vocabulary(f"{workdir}/vocabulary")
    if opened.vocabulary.fingerprint != trained.fingerprint:
        raise ConfigError(
            f"{opened.path} was prepared with another vocabulary than that of {workdir}; "
            f"prepare it with --vocabulary {workdir}/vocabulary"
        )
    check_labels(run, opened)
    data = dataclasses.replace(run.data, rates=()) if store else run.data
    stream = open_stream(opened, data, split=split, seed=run.train.seed, evaluates=True)
    mesh = make_mesh(run.mesh)
    found = open_trained(
        workdir,
        step,
        lambda text: print(text, file=sys.stderr),
        lambda path, shape: parameter_sharding(path, shape, mesh),
    )
    sentences = needs_sentence_heads(run.data.objective)
    random_head.check_head(found, "evaluate", allow_random_head, sentence_heads=sentences)
    run, step = settled(found), found.step
    for line in truncation_report.describe(stream):
        print(line, file=sys.stderr)
    model = build(run.model, **make_model_hooks(mesh, []))
    evaluator = make_evaluator(
        model,
        make_loss(run.data.objective),
        mesh,
        compute=run.train.compute_dtype,
        metrics=run.evaluate.metrics,
        objective=run.data.objective,
    )
    with jax.set_mesh(mesh):
        return step, opened.path, evaluator(found.params, stream)


def needs_sentence_heads(objective):
    """Return whether an objective scores more than masked words."""

    from data.mixed import split_objective

    return any(part.name != "masked_lm" for part in split_objective(objective).values())


def run_task(args):
    """Questions in place of a token store: checked before anything is loaded."""
    if args.store:
        raise ValueError("give --task or --store, not both")
    for name, least in (("shots", 0), ("batch_size", 1), ("seed", 0)):
        if getattr(args, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} {getattr(args, name)}: at least {least}")
    questions = read_questions(args.task)
    pool = read_questions(args.examples) if args.examples else questions
    if pool[0].open != questions[0].open:
        raise ValueError(
            f"{args.examples}: its questions are of another form than those of {args.task}"
        )
    processes.start(args)
    import sys

    import jax

    from pretrain.distributed.sharding import make_mesh, parameter_sharding
    from pretrain.inference.in_context import evaluate_task
    from pretrain.inference.trained import open_trained
    from pretrain.workdir.checkpoints import read_run

    mesh = make_mesh(read_run(args.workdir).mesh)
    trained = open_trained(
        args.workdir,
        args.step,
        report=lambda text: print(text, file=sys.stderr),
        place=lambda path, shape: parameter_sharding(path, shape, mesh),
    )
    random_head.check_head(trained, "evaluate", args.allow_random_head)
    with jax.set_mesh(mesh):
        numbers, found = evaluate_task(
            trained,
            mesh,
            questions,
            pool=pool,
            shots=args.shots,
            delimiter=args.delimiter.replace("\\n", "\n"),
            answer_context=args.answer_context,
            seed=args.seed,
            batch_size=args.batch_size,
        )
    if jax.process_index():
        return 0
    if args.output:
        with sink(args.output) as write:
            for question, one in zip(questions, found, strict=True):
                write(json.dumps(question.record | one, ensure_ascii=False))
    if args.json:
        print(json.dumps({"step": trained.step, "task": args.task, **numbers}))
        return 0
    print(f"step {trained.step:,} on {args.task}")
    for name, value in numbers.items():
        print(f"  {name:<28}{value:,}" if isinstance(value, int) else f"  {name:<28}{value:.5g}")
    return 0
