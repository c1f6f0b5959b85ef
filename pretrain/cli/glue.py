"""glue RUN...: the table of GLUE (Wang et al. 2019) from runs that `finetune` made of its tasks, and the files of a submission.

    python -m pretrain glue runs/cola runs/mrpc runs/mnli --mismatched dev_mismatched.tsv
    python -m pretrain glue runs/cola runs/mnli --test CoLA=cola_test.tsv MNLI-m=test_matched.tsv --output submission

A run of several seeds counts with the mean of their best scores, and is submitted by the best of them; one that learned several tasks counts
for each, with the scores of the step whose `mean` is best. A task's score is the mean of its metrics, and MNLI's that of both its parts; the
average is over the tasks that are there.
"""

import json
import os
import statistics
import sys

from pretrain.finetune.text2text_task import NUMBERED

# The names of a submission's files -> the task, in the order of the paper's table.
FILES = {
    "CoLA": "cola",
    "SST-2": "sst2",
    "MRPC": "mrpc",
    "STS-B": "stsb",
    "QQP": "qqp",
    "MNLI-m": "mnli",
    "MNLI-mm": "mnli",
    "QNLI": "qnli",
    "RTE": "rte",
    "WNLI": "wnli",
    "AX": "mnli",
}
IN_WORDS = (
    "mnli",
    "qnli",
    "rte",
)  # whose submission has the names of classes; the others have their numbers
INDEX = ("index", "id", "idx")  # the columns that number a test set's lines


def add_arguments(parser):
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="workdirs of `finetune --task cola` and so on, also those of --seeds or of several tasks",
    )
    parser.add_argument(
        "--mismatched", metavar="FILE", help="MNLI's second held-out part, scored with the MNLI run"
    )
    parser.add_argument(
        "--test",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=FILE",
        help=f"test sets without labels to submit; NAME: {', '.join(FILES)}",
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="for the files of a submission, NAME.tsv each"
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts computed at once (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the table as one JSON object")


def run(args):
    tests = [test.partition("=")[::2] for test in args.test]
    for name, file in tests:
        if name not in FILES or not file:
            raise ValueError(
                f"--test {name}{'=' * bool(file)}{file}: NAME=FILE, and NAME is one of {', '.join(FILES)}"
            )
    if bool(tests) != bool(args.output):
        raise ValueError(
            "--test NAME=FILE names what is submitted, --output FOLDER where it is written: give both or none"
        )
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: at least 1")
    found = {}
    for folder in args.runs:
        own = read(folder)
        if twice := [task for task in own if task in found]:
            raise ValueError(f"{folder}: a second run of {twice[0]}; one a task is averaged")
        found |= own
    for name, file in tests:
        if FILES[name] not in found:
            raise ValueError(
                f"--test {name}={file}: there is no run of {FILES[name]} among {', '.join(args.runs)}"
            )
    if args.mismatched and "mnli" not in found:
        raise ValueError(
            f"--mismatched {args.mismatched}: there is no run of mnli among {', '.join(args.runs)}"
        )
    scores = table(found, args.mismatched)
    print(json.dumps(scores) if args.json else told(scores))
    for name, file in tests:
        submit(found[FILES[name]], name, file, args.output, args.batch_size)
    return 0


# ---- the table -----------------------------------------------------------------


def read(folder):
    """{task: {workdir: (its best step, its scores by the names of metrics)}} of the tasks of a run that are GLUE's; of several seeds each workdir.

    Raises ValueError for what is no run of any of them, or was not measured as GLUE does.
    """
    from pretrain.finetune.seed_summary import outcome
    from pretrain.finetune.tasks import TASKS

    workdirs = [folder]
    if os.path.exists(path := os.path.join(folder, "scores.json")):
        with open(path, encoding="utf-8") as file:
            workdirs = [
                os.path.join(folder, os.path.basename(name)) for name in json.load(file)["runs"]
            ]
    origin = os.path.join(workdirs[0], "origin.json")
    names = []
    if os.path.exists(origin):
        with open(origin, encoding="utf-8") as file:
            names = (json.load(file).get("task") or "").split(", ")
    several, tasks = len(names) > 1, [name for name in names if name in FILES.values()]
    if not tasks:
        raise ValueError(
            f"{folder} is not a run of `finetune --task` {', '.join(dict.fromkeys(FILES.values()))}"
        )
    best = {
        workdir: outcome(workdir, "mean" if several else TASKS[tasks[0]].metrics[0])
        for workdir in workdirs
    }
    found = {}
    for task in tasks:
        names = {
            metric: f"{task}/{metric}" if several else metric for metric in TASKS[task].metrics
        }
        for workdir, (_, scores) in best.items():
            if missing := [name for name in names.values() if name not in scores]:
                told = "" if several else f"; GLUE's are evaluate.metrics={','.join(names)}"
                raise ValueError(
                    f"{workdir}: {', '.join(missing)} of the held-out part was not measured{told}"
                )
        found[task] = {
            workdir: (step, {metric: scores[name] for metric, name in names.items()})
            for workdir, (step, scores) in best.items()
        }
    return found


def table(found, mismatched=None):
    """{"tasks": {name: {metric: mean over the seeds}}, "scores": {task: one number}, "average", "missing": names}, out of 100."""
    tasks = {}
    for name, task in FILES.items():
        if task in found and name not in ("MNLI-mm", "AX"):
            each = [scores for _, scores in found[task].values()]
            tasks[name] = {
                metric: 100 * statistics.fmean(scores[metric] for scores in each)
                for metric in each[0]
            }
    if mismatched:
        each = [
            other_part(workdir, step, mismatched) for workdir, (step, _) in found["mnli"].items()
        ]
        at = list(tasks).index("MNLI-m") + 1
        tasks = dict(
            [
                *list(tasks.items())[:at],
                ("MNLI-mm", {"accuracy": 100 * statistics.fmean(each)}),
                *list(tasks.items())[at:],
            ]
        )
    parts = {}
    for name, metrics in tasks.items():
        parts.setdefault(FILES[name], []).append(statistics.fmean(metrics.values()))
    scores = {task: statistics.fmean(each) for task, each in parts.items()}
    missing = [name for name in FILES if name not in tasks and name != "AX"]
    return {
        "tasks": tasks,
        "scores": scores,
        "average": statistics.fmean(scores.values()),
        "missing": missing,
    }


def other_part(workdir, step, source, task="mnli"):
    """Accuracy of a task on other labelled examples than the run's own."""
    from pretrain.cli.evaluate import evaluate
    from pretrain.evaluation.label_checks import labelled_store
    from pretrain.workdir.checkpoints import read_run

    several = getattr(read_run(workdir).data.objective, "tasks", ())
    with labelled_store(workdir, f"{task}={source}" if several else source) as store:
        scores = evaluate(workdir, step=step, store=store)[2]
    return scores[f"{task}/accuracy" if several else "accuracy"]


def told(scores):
    """The table for a person."""
    lines = []
    for name, metrics in scores["tasks"].items():
        numbers = " / ".join(f"{value:.1f}" for value in metrics.values())
        lines.append(f"{name:<10}{numbers:<14}{' / '.join(metrics)}")
    count = len(scores["scores"])
    absent = f"; not here: {', '.join(scores['missing'])}" if scores["missing"] else ""
    whole = (
        "of all nine tasks"
        if count == 9
        else f"of {count} of nine tasks, which is not GLUE's score"
    )
    return "\n".join([*lines, f"{'average':<10}{scores['average']:<14.1f}{whole}{absent}"])


# ---- a submission --------------------------------------------------------------


def submit(best, name, file, folder, batch_size):
    """Write FOLDER/NAME.tsv: what the best run of a task tells of a test set, as the benchmark takes it."""
    from data.examples.labelled import records
    from pretrain.finetune.answering import answerer
    from pretrain.finetune.tasks import TASKS
    from pretrain.inference.trained import open_trained

    task = FILES[name]
    metric = TASKS[task].metrics[0]
    workdir = max(best, key=lambda workdir: best[workdir][1][metric])
    trained = open_trained(
        workdir, best[workdir][0], report=lambda text: print(text, file=sys.stderr)
    )
    objective = trained.run.data.objective
    several = {each.task: each for each in getattr(objective, "tasks", ())}
    *own, _ = several.get(task, objective).columns
    ways = [tuple(own), *(columns.texts for columns in TASKS[task].columns)]
    rows = list(records(file))
    if not rows:
        raise ValueError(f"{file}: no examples in it")
    texts = [((task,) if several else ()) + texts_of(record, place, ways) for place, record in rows]
    numbers = [
        next((record[column] for column in INDEX if column in record), i)
        for i, (_, record) in enumerate(rows)
    ]
    answers = answerer(trained, batch_size=batch_size)(texts, [place for place, _ in rows], 0)
    lines = [prediction(task, result) for result in answers]
    silent = sum(result["score" if task == "stsb" else "label"] is None for result in answers)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.tsv")
    with open(path, "w", encoding="utf-8") as out:
        out.write(
            "index\tprediction\n"
            + "".join(f"{number}\t{line}\n" for number, line in zip(numbers, lines))
        )
    print(
        f"{path}: {len(lines):,} predictions of {workdir}"
        + (f", {silent:,} of which say no label" if silent else "")
    )


def texts_of(record, place, ways):
    """The texts in a record, by the first of the ways in which their columns may be named that is there."""
    for names in ways:
        if all(isinstance(record.get(column), str) for column in names):
            return tuple(record[column] for column in names)
    told = " or ".join(",".join(names) for names in dict.fromkeys(ways))
    raise ValueError(
        f"{place}: expected the columns {told}; there are {', '.join(map(repr, record))}"
    )


def prediction(task, result):
    """A result of `predict` as a submission has it: 0 to 5, a class by name or by number; one that says none counts as the first class, or 0."""
    if task == "stsb":
        return f"{min(max(result['score'] or 0.0, 0.0), 5.0):.3f}"
    names, label = NUMBERED[task], result["label"]
    if label is not None and label not in (*names, *map(str, range(len(names)))):
        raise ValueError(
            f"the run tells the label {label!r}; GLUE's are {', '.join(names)}, or their numbers from 0"
        )
    number = 0 if label is None else int(label) if label.isdecimal() else names.index(label)
    return names[number] if task in IN_WORDS else str(number)
