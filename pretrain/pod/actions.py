"""What the verb `pod` does: one function `do_ACTION(args, pod)` for each action."""

import sys
import time

from pretrain.pod import archive
from pretrain.pod.gcloud import GcloudError
from pretrain.pod.watch import COMING, Watch

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
