"""A stand-in for gcloud: records each call, keeps one pod of two workers in $STANDIN, and fails as
$STANDIN/plan.json requests.

Commands for workers are really run, by bash, with a folder of $STANDIN as home and the folder
worker/ next to this file first on PATH. The plan is a list of {"on": verb, "nth": n} (the n-th call
of that verb) with any of: "fail": text (exit 1), "become": {...} (changes the pod, then answers),
"training": text (what the worker's Python does from now on), "deaf": worker (unreachable).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(os.environ["STANDIN"])
POD = FOLDER / "pod.json"


def worker_folder(worker):
    return FOLDER / f"worker{worker}"


def on_workers(argv, deaf):
    """Run --command on both workers at once; return the exit status of the last that failed."""
    script = next(word.removeprefix("--command=") for word in argv if word.startswith("--command="))
    chosen = next(word for word in argv if word.startswith("--worker=")).removeprefix("--worker=")
    path = f"{pathlib.Path(__file__).parent / 'worker'}:{os.environ['PATH']}"
    status, jobs = 0, []
    for worker in (0, 1) if chosen == "all" else (int(chosen),):
        if worker == deaf:
            print(f"worker {worker}: Connection timed out", file=sys.stderr)
            status = 255
            continue
        env = os.environ | {
            "HOME": str(worker_folder(worker)),
            "STANDIN_HOST": f"w-{worker}",
            "CLOZE_STOP_SECONDS": "5",
            "PATH": path,
        }
        jobs.append(subprocess.Popen(["bash", "-c", script], cwd=worker_folder(worker), env=env))
    return max([status, *(job.wait() for job in jobs)])


def main(argv):
    with open(FOLDER / "calls.jsonl", "a") as calls:
        calls.write(json.dumps(["gcloud", *argv]) + "\n")
    assert argv[:2] == ["compute", "tpus"], argv
    verb = argv[3]
    counts = (
        json.loads((FOLDER / "counts.json").read_text())
        if (FOLDER / "counts.json").exists()
        else {}
    )
    counts[verb] = counts.get(verb, 0) + 1
    (FOLDER / "counts.json").write_text(json.dumps(counts))
    plan = json.loads((FOLDER / "plan.json").read_text()) if (FOLDER / "plan.json").exists() else []
    event = next(
        (event for event in plan if event["on"] == verb and event["nth"] == counts[verb]), {}
    )
    pod = json.loads(POD.read_text()) if POD.exists() else None
    if "become" in event and pod:
        pod |= event["become"]
        POD.write_text(json.dumps(pod))
    if "training" in event:
        (FOLDER / "training").write_text(event["training"])
    if "fail" in event:
        print(event["fail"], file=sys.stderr)
        return 1
    if verb == "create":
        assert pod is None, "ALREADY_EXISTS"
        kind = next(
            word.partition("=")[2] for word in argv if word.startswith("--accelerator-type=")
        )
        POD.write_text(json.dumps({"state": "ACTIVE", "type": kind, "spot": "--spot" in argv}))
        for worker in (0, 1):
            worker_folder(worker).mkdir()
    elif pod is None:
        print("ERROR: (gcloud) NOT_FOUND: no such queued resource", file=sys.stderr)
        return 1
    elif verb == "describe" and argv[2] == "tpu-vm":
        print(pod.get("node", "READY"))
    elif verb == "describe":
        description = {
            "state": {"state": pod["state"], "stateInitiator": pod.get("initiator", "SERVICE")}
        }
        if "error" in pod:
            description["state"]["failedData"] = {"error": {"message": pod["error"]}}
        description["tpu"] = {"nodeSpec": [{"node": {"acceleratorType": pod["type"]}}]}
        print(json.dumps(description | ({"spot": {}} if pod["spot"] else {})))
    elif verb == "delete":
        POD.unlink()
        for worker in (0, 1):
            pid = worker_folder(worker) / "cloze/run/keeper"
            if pid.exists():  # the machine's processes end with it
                subprocess.run(
                    ["bash", "-c", f"kill -KILL -- -{pid.read_text().strip()}"],
                    stderr=subprocess.DEVNULL,
                )
            shutil.move(worker_folder(worker), FOLDER / f"gone{counts[verb]}-{worker}")
    elif verb == "scp":
        for worker in (0, 1):
            shutil.copy(argv[4], worker_folder(worker) / argv[5].partition(":")[2])
    elif verb == "ssh":
        return on_workers(argv, event.get("deaf"))
    return 0


sys.exit(main(sys.argv[1:]))
