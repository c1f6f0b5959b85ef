"""The actions of the verb `pod`: one function `do_ACTION(args, pod)` for each."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from pretrain.pod import archive
from pretrain.pod.environment import START, name_start
from pretrain.pod.gcloud import ALL_WORKERS, DryRunPod, GcloudError
from pretrain.pod.watch import PENDING_STATES, Watch

if TYPE_CHECKING:
    from pretrain.pod.answers import PodState
    from pretrain.pod.gcloud import Pod

# ---- actions -------------------------------------------------------------------


def do_create(args: argparse.Namespace, pod: Pod) -> None:
    """Request the pod as a queued resource, where a later push can succeed."""
    archive.list_tracked(archive.ROOT)
    if isinstance(pod, DryRunPod):
        pod.exists = False
    found = pod.read_state()
    if found:
        raise ValueError(
            f"pod {pod.name} exists already, it is {found.state}: remove it with `pod delete`, "
            "or use another --name"
        )
    pod.create_pod(args.request)
    if not args.dry_run:
        archive.mark_deleted(pod, False)
    if args.wait:
        wait_until_active(args, pod)
    requested = "would request" if args.dry_run else "requested"
    print(f"# {requested} {args.slices} x {args.type} as {pod.name}; next: pod push --wait")


def do_push(args: argparse.Namespace, pod: Pod) -> None:
    """Copy the tracked files to all workers."""
    wait_until_active(args, pod)
    with archive.lock_archive(pod) as path:
        # A running watch may need the old archive: it is replaced only after the push has
        # succeeded.
        fresh = path.with_name(path.name + ".next")
        packed = path.with_name(path.name + ".rehearsal") if args.dry_run else fresh
        print(f"# {archive.pack_tree(packed)}")
        output = pod.push_tree(fresh, archive.hash_archive(packed))
        if args.dry_run:
            packed.unlink()
            return
        fresh.replace(path)
    print(output, end="")


def start_training(args: argparse.Namespace, pod: Pod) -> None:
    """Start the training on every worker, or on none.

    If one worker cannot be reached, the others would wait for it.
    """
    check_pushed(args, pod)
    check_request(args, wait_until_active(args, pod))
    reports = pod.list_reports()
    empty_hosts = [report.host for report in reports if report.state == "empty"]
    if empty_hosts or not reports:
        raise ValueError(
            f"nothing was pushed to {', '.join(empty_hosts) or 'any worker'}: run `pod push` first"
        )
    busy_hosts = [report.host for report in reports if report.state == "running"]
    if busy_hosts:
        raise ValueError(
            f"a training runs already on {', '.join(busy_hosts)}: "
            "`pod watch` resumes watching it, `pod stop` ends it"
        )
    try:
        env = name_start(args.variables, archive.name_tree(pod))
        pod.run_worker("start", *args.argv, env=env)
    except GcloudError:
        print(
            "error: not every worker could start; stopping the training on those that did",
            file=sys.stderr,
        )
        pod.run_worker("stop", "force", START)  # not what another person has started meanwhile
        raise


def do_run(args: argparse.Namespace, pod: Pod) -> int:
    """Start the training and watch it; return the exit status."""
    start_training(args, pod)
    if args.detach:
        started = "would start" if args.dry_run else "started"
        print(
            f"# {started}; `pod watch` watches it, `pod logs --follow --name {pod.name}` shows it"
        )
        return 0
    return do_watch(args, pod)


def do_watch(args: argparse.Namespace, pod: Pod) -> int:
    """Watch the training until it ends; return the exit status."""
    watch = Watch(
        pod,
        args.request,
        args.argv,
        args.variables,
        args.poll,
        args.tries,
        (lambda _: None) if args.dry_run else time.sleep,
    )
    if isinstance(pod, DryRunPod):
        pod.training_state = "exited"
        watch.log_line, watch.deleted_by_watch = lambda text: None, False
    elif args.action == "watch":
        check_pushed(args, pod)
        found = pod.read_state()
        if found and found.state == "ACTIVE":
            check_request(args, found)
    try:
        status = watch.run()
    except KeyboardInterrupt:
        print(
            "stopped watching; the training continues. `pod watch` watches it again, "
            "`pod stop` ends it",
            file=sys.stderr,
        )
        return 130
    if args.dry_run:
        print("# if the pod is taken away meanwhile:")
        pod.delete_pod()
        pod.create_pod(args.request)
        watch.refill_pod(pod.list_reports(), archive.name_tree(pod))
    return status


def do_logs(args: argparse.Namespace, pod: Pod) -> None:
    """Print the end of the log of one worker or of all."""
    all_workers = args.worker == "all"
    if all_workers and args.follow:
        raise ValueError("logs --follow shows one worker: select it with --worker N")
    where = ALL_WORKERS if all_workers else ("--node=0", f"--worker={args.worker}")
    mode = ["follow"] if args.follow else ["name"] if all_workers else []
    pod.run_worker("logs", str(args.lines), *mode, show=True, where=where)


def do_doctor(args: argparse.Namespace, pod: Pod) -> None:
    """Run a short verb on all workers and wait for it."""
    pod.run_worker("now", *args.argv, env=args.variables, show=True)


def do_stop(args: argparse.Namespace, pod: Pod) -> None:
    """End the training."""
    print(pod.run_worker("stop", *(["force"] if args.force else [])), end="")


def do_delete(args: argparse.Namespace, pod: Pod) -> None:
    """Delete the pod after a confirmation."""
    found = pod.read_state()
    if not found:
        if not args.dry_run:
            archive.mark_deleted(pod, False)
        command = f"`gcloud compute tpus queued-resources list --zone {pod.zone}`"
        raise GcloudError(
            f"there is no pod {pod.name} in {pod.zone}: nothing is deleted; "
            f"{command} lists the pods of the zone"
        )
    if not (args.yes or args.dry_run):
        if not sys.stdin.isatty():
            raise ValueError(
                "pod delete asks for confirmation, and standard input is not a terminal: add --yes"
            )
        print(
            f"pod {pod.name}: {found.slices} x {found.type or 'unknown type'}, {found.state}. "
            "Everything that runs there ends, and its disks are lost."
        )
        if input(f"Type {pod.name} to delete it: ").strip() != pod.name:
            raise ValueError("not deleted")
    pod.delete_pod()
    if not args.dry_run:
        archive.mark_deleted(pod, False)
    print(f"# {'would delete' if args.dry_run else 'deleted'} {pod.name}")


# ---- shared by the actions -----------------------------------------------------


def wait_until_active(args: argparse.Namespace, pod: Pod) -> PodState:
    """Return the state of an ACTIVE pod; with --wait, wait until it is ACTIVE."""
    while True:
        found = pod.read_state()
        if found and found.state == "ACTIVE":
            return found
        if not found or not (args.wait and found.state in PENDING_STATES):
            state = f"is {found}" if found else "does not exist: `pod create` requests it"
            hint = "; add --wait" if found and found.state in PENDING_STATES else ""
            raise GcloudError(f"pod {pod.name} {state}{hint}")
        time.sleep(args.poll)


def check_pushed(args: argparse.Namespace, pod: Pod) -> None:
    """Raise ValueError if there is no local copy of the pushed archive."""
    if not args.dry_run:
        archive.adopt_archive(pod)
    if not args.dry_run and not archive.locate_archive(pod).exists():
        raise ValueError(
            f"nothing was pushed to {pod.name} from this machine: run `pod push` first "
            "(a preempted pod gets the same code again), with the same --zone and --project"
        )


def check_request(args: argparse.Namespace, pod_state: PodState) -> None:
    """Raise ValueError if the flags do not describe the existing pod.

    After a preemption a pod is requested by these flags.
    """
    if args.dry_run:
        return
    for name in ("type", "slices", "spot"):
        actual, given = getattr(pod_state, name), getattr(args, name)
        if actual != given and actual != "":
            raise ValueError(
                f"pod {args.name} was created with --{name} {actual}, the command line has "
                f"{given}: after a preemption another kind of pod would be requested"
            )
