"""The verb `pod`: ask for a TPU pod, fill it, run a training on all its workers, and keep it running. It drives `gcloud`.

It needs Python 3.11 and nothing else, so that it runs on the laptop from which a pod is steered. See docs/pods.md.
"""

import re
import sys
import time

from pretrain.pod import archive
from pretrain.pod.environment import variables
from pretrain.pod.gcloud import RUNTIMES, GcloudError, Pod, PodRequest, Rehearsal
from pretrain.pod.watch import COMING, Watch

ACTIONS = {
    "create": "ask for the pod, as a queued resource",
    "push": "copy what git tracks to all workers, and install what it needs",
    "run": "start `-- VERB ...` on all workers, detached, and watch it; a preempted pod is asked for again and goes on",
    "watch": "go on watching what `run` started (the same words)",
    "logs": "the end of the log of one worker (--worker all: of each)",
    "doctor": "run `-- doctor ...` or another short verb on all workers at once, and wait",
    "stop": "end the training: it saves and leaves (--force: at once)",
    "delete": "give the pod back",
}


def add_arguments(parser):
    told = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, help=told.replace("%", "%%"))
    parser.add_argument(
        "--name", required=True, help="of the queued resource; its nodes are called after it"
    )
    parser.add_argument("--zone", required=True, help="e.g. us-east5-a")
    parser.add_argument("--project", help="default: gcloud's own")
    parser.add_argument(
        "--type", help="accelerator type, e.g. v5p-32; create, run and watch need it"
    )
    parser.add_argument("--spot", action="store_true", help="ask for a preemptible pod")
    parser.add_argument(
        "--slices",
        type=int,
        default=1,
        help="how many pods of that type, joined over the data centre's network",
    )
    parser.add_argument(
        "--runtime", help="image of the workers; default: the one that Google names for the type"
    )
    many = {"action": "append", "default": []}
    parser.add_argument(
        "--create-flag",
        **many,
        metavar="FLAG",
        help="handed to `create`, e.g. --create-flag=--reserved",
    )
    parser.add_argument(
        "--connect-flag",
        **many,
        metavar="FLAG",
        help="handed to ssh and scp, e.g. --connect-flag=--tunnel-through-iap",
    )
    parser.add_argument(
        "--env",
        **many,
        metavar="NAME=VALUE",
        help="adds to pretrain/pod/environment.py, or replaces a row",
    )
    parser.add_argument(
        "--wait", action="store_true", help="create, push, run: wait until the pod is ACTIVE"
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="run: start it and leave; a preempted pod then stays lost until `watch`",
    )
    parser.add_argument(
        "--poll",
        type=float,
        default=60.0,
        help="seconds between two looks at the pod (default: 60)",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=20,
        help="failures in a row after which the watch gives up (default: 20)",
    )
    parser.add_argument(
        "--worker",
        default="0",
        help="logs: which worker of the first slice, or all (of all slices)",
    )
    parser.add_argument("--lines", type=int, default=30, help="logs: how many (default: 30)")
    parser.add_argument("--follow", action="store_true", help="logs: stay and show what comes")
    parser.add_argument("--force", action="store_true", help="stop: kill it")
    parser.add_argument("--yes", action="store_true", help="delete: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="-- VERB ...",
        help="what to run, e.g. -- train bert_large --workdir gs://...",
    )


def run(args):
    """Do one action; returns the exit status. Everything that can be wrong with the words is found before the first command."""
    check(args)
    pod = (Rehearsal if args.dry_run else Pod)(
        args.name, args.zone, args.project, args.connect_flag
    )
    try:
        return globals()[f"do_{args.action}"](args, pod) or 0
    except GcloudError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def check(args):
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", args.name):
        raise ValueError(
            f"--name {args.name!r}: gcloud takes lower-case letters, digits and inner hyphens, a letter first"
        )
    if args.slices < 1 or args.poll < 0 or args.tries < 1:
        raise ValueError(
            f"--slices {args.slices} --poll {args.poll} --tries {args.tries}: expected at least 1, 0 and 1"
        )
    if args.action in ("create", "run", "watch"):
        args.request = request(args)
    if args.action in ("run", "watch", "doctor"):
        args.words = args.words or (["doctor"] if args.action == "doctor" else [])
        if not args.words:
            raise ValueError(
                f"pod {args.action}: say what to run behind two hyphens, e.g. -- train bert_large --workdir gs://bucket/run"
            )
        args.variables = variables(workdir(args), args.env)
    elif args.words:
        raise ValueError(f"pod {args.action} takes no words: {' '.join(args.words)}")


def request(args):
    if not args.type:
        raise ValueError(
            f"pod {args.action} needs --type, e.g. v5p-32 (run and watch: a preempted pod is asked for again)"
        )
    generation = args.type.rpartition("-")[0]
    if not args.runtime and generation not in RUNTIMES:
        hint = (
            "; TPU7x is reached through GKE only, see docs/pods.md"
            if args.type.startswith("tpu7x")
            else ""
        )
        known = ", ".join(f"{name}-N" for name in RUNTIMES)
        raise ValueError(
            f"--type {args.type}: no runtime is known for it; known are {known}. Name one with --runtime{hint}"
        )
    return PodRequest(
        args.type,
        args.runtime or RUNTIMES[generation],
        args.spot,
        args.slices,
        tuple(args.create_flag),
    )


def workdir(args):
    """The --workdir among the words. What is to outlive the pod must lie outside it."""
    found = [word.partition("=")[2] for word in args.words if word.startswith("--workdir=")]
    found += [after for word, after in zip(args.words, args.words[1:]) if word == "--workdir"]
    if args.action in ("run", "watch") and (not found or not found[-1].startswith("gs://")):
        seen = f"--workdir {found[-1]}" if found else "no --workdir"
        raise ValueError(
            f"pod {args.action}: {seen}; it must be gs://BUCKET/FOLDER: a pod's disks end with it, and its workers share none"
        )
    return found[-1] if found and found[-1].startswith("gs://") else None


# ---- actions -------------------------------------------------------------------


def do_create(args, pod):
    if args.dry_run:
        pod.exists = False
    found = pod.describe()
    if found:
        raise ValueError(
            f"there is a pod {pod.name} already, it is {found.name}: `pod delete` it, or choose another --name"
        )
    pod.create(args.request)
    if args.wait:
        active(args, pod)
    print(f"# asked for {args.slices} x {args.type} as {pod.name}; next: pod push --wait")


def do_push(args, pod):
    active(args, pod)
    path = archive.cache(pod.name)
    fresh = path.with_name(
        path.name + ".next"
    )  # the watch may need the old one again: it is replaced when the new one is in place
    packed = path.with_name(path.name + ".rehearsal") if args.dry_run else fresh
    print(f"# {archive.pack(packed)}")
    said = pod.push(fresh, archive.identity(packed))
    if args.dry_run:
        packed.unlink()
        return
    fresh.replace(path)
    print(said, end="")


def start(args, pod):
    """Start the words on every worker, or on none: one that cannot be reached would leave the others waiting for it."""
    kept(args, pod)
    fits(args, active(args, pod))
    reports = pod.reports()
    bare = [report.host for report in reports if report.state == "empty"]
    if bare or not reports:
        raise ValueError(
            f"nothing was pushed to {', '.join(bare) or 'any worker'}: `pod push` first"
        )
    busy = [report.host for report in reports if report.state == "running"]
    if busy:
        raise ValueError(
            f"a training runs already on {', '.join(busy)}: `pod watch` goes on watching it, `pod stop` ends it"
        )
    try:
        pod.worker("start", *args.words, env=args.variables)
    except GcloudError:
        print("error: not every worker could start; ending it on those that did", file=sys.stderr)
        pod.worker("stop", "force")
        raise


def do_run(args, pod):
    start(args, pod)
    if args.detach:
        print(f"# started; `pod watch` watches it, `pod logs --follow --name {pod.name}` shows it")
        return 0
    return do_watch(args, pod)


def do_watch(args, pod):
    looking = Watch(
        pod,
        args.request,
        args.words,
        args.variables,
        args.poll,
        args.tries,
        (lambda _: None) if args.dry_run else time.sleep,
    )
    if args.dry_run:
        pod.state = "exited"
        looking.tell = lambda text: None
    elif args.action == "watch":
        kept(args, pod)
        found = pod.describe()
        if found and found.name == "ACTIVE":
            fits(args, found)
    try:
        status = looking.run()
    except KeyboardInterrupt:
        print(
            "no longer watching; the training goes on. `pod watch` watches again, `pod stop` ends it",
            file=sys.stderr,
        )
        return 130
    if args.dry_run:
        print("# if the pod is taken away meanwhile:")
        pod.delete()
        pod.create(args.request)
        path = archive.cache(pod.name)
        looking.refill(pod.reports(), archive.identity(path) if path.exists() else "TREE")
    return status


def do_logs(args, pod):
    every = args.worker == "all"
    if every and args.follow:
        raise ValueError("logs --follow shows one worker: name it with --worker N")
    where = {} if every else {"where": ("--node=0", f"--worker={args.worker}")}
    mode = ["follow"] if args.follow else ["name"] if every else []
    pod.worker("logs", str(args.lines), *mode, show=True, **where)


def do_doctor(args, pod):
    pod.worker("now", *args.words, env=args.variables, show=True)


def do_stop(args, pod):
    print(pod.worker("stop", *(["force"] if args.force else [])), end="")


def do_delete(args, pod):
    found = pod.describe()
    if not found:
        listed = f"`gcloud compute tpus queued-resources list --zone {pod.zone}`"
        raise GcloudError(
            f"there is no pod {pod.name} in {pod.zone}: nothing is deleted; {listed} shows what is there"
        )
    if not (args.yes or args.dry_run):
        if not sys.stdin.isatty():
            raise ValueError(
                "pod delete asks before it deletes, and nobody is there to answer: add --yes"
            )
        print(
            f"pod {pod.name}: {found.slices} x {found.type or 'unknown type'}, {found.name}. What runs there ends, its disks are lost."
        )
        if input(f"Type {pod.name} to delete it: ").strip() != pod.name:
            raise ValueError("not deleted")
    pod.delete()
    print(f"# deleted {pod.name}")


# ---- parts of them -------------------------------------------------------------


def active(args, pod):
    """The PodState of the pod, which is ACTIVE; with --wait, once it is."""
    while True:
        found = pod.describe()
        if found and found.name == "ACTIVE":
            return found
        if not found or not (args.wait and found.name in COMING):
            seen = f"is {found.name}" if found else "is not there: `pod create` asks for it"
            hint = "; add --wait" if found and found.name in COMING else ""
            raise GcloudError(f"pod {pod.name} {seen}{hint}")
        time.sleep(args.poll)


def kept(args, pod):
    if not args.dry_run and not archive.cache(pod.name).exists():
        raise ValueError(
            f"nothing was pushed to {pod.name} from this machine: `pod push` first (a preempted pod gets the same code again)"
        )


def fits(args, found):
    """A preempted pod is asked for again by these words: they must describe the one that is there."""
    if args.dry_run:
        return
    for word in ("type", "slices", "spot"):
        seen, given = getattr(found, word), getattr(args, word)
        if seen != given and seen != "":
            asked = "after a preemption another pod would be asked for"
            raise ValueError(
                f"pod {args.name} was made with --{word} {seen}, the words say {given}: {asked}"
            )
