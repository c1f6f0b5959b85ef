"""The public command with one fault in it: `python tests/faults/faulty.py
KIND:MOMENT[:STEP[:SECONDS]] VERB ...`. The product knows nothing of this.

kill:compile        while the first step is being compiled         kill:step:N      in step N, after
it was started, before it is logged kill:evaluate:N     after the first batch of the evaluation at N
kill:saved:N     as soon as checkpoint N is committed kill:last:N         as kill:step, at the last
step                 kill:data:N      in a thread that builds the batch of step N + 1 kill:save:N
as checkpoint N begins to be saved             kill:finish:N    in Orbax's thread, before N has its
name kill:delete:N       as the old ones are deleted, after N has its name

SECONDS: so much later, while the run goes on.

hang:MOMENT:N       then does not go on, in that thread            slow:MOMENT:N    then goes on
SLOW seconds later full:MOMENT:N       then fills the disk that $FAULTY_PLACE names, and the run
goes on gone:MOMENT:N       then puts a file where the folder $FAULTY_PLACE was, and the run goes on
wait:MOMENT:N       then waits until the file $FAULTY_GO exists       stop:MOMENT:N    then sends
itself SIGSTOP term:MOMENT:N       then sends itself SIGTERM                      twice:MOMENT:N
two of them, more than a second apart
none                no fault

$FAULTY_ROWS names a file to which a line is added for each finished step: which rows it read.
$FAULTY_LEASE=HEARTBEAT,STALE shortens the times of the lease, and $FAULTY_MACHINE makes this
process one of another machine.
"""

import hashlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fill():
    place = os.environ["FAULTY_PLACE"]
    free = os.statvfs(place)
    pathlib.Path(place, "ballast").write_bytes(
        bytes(max(0, free.f_bavail * free.f_frsize - 50_000))
    )


def hang():
    threading.Event().wait()


SLOW = 20


def slow():
    time.sleep(SLOW)


def put_a_file():
    place = pathlib.Path(os.environ["FAULTY_PLACE"])
    place.rename(place.with_name(place.name + ".gone"))
    place.write_text("")


def term():
    print(f"SIGTERM at {time.time()}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def twice():
    term()
    time.sleep(1.5)
    term()


def wait():
    while not os.path.exists(os.environ["FAULTY_GO"]):
        time.sleep(0.05)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def record_rows(place):
    """Note which rows each step has read, once its line is in metrics.jsonl."""
    import jax

    from pretrain.training.context import RestartableFeed
    from pretrain.workdir.metrics_file import MetricsLog

    read_next, write_row, digests = RestartableFeed.__next__, MetricsLog.write_row, {}

    def read_and_note(self):
        step, batch = read_next(self)
        digests[step + 1] = digest_rows(jax.device_get(batch))
        return step, batch

    def write_and_record(self, row):
        write_row(self, row)
        line = {"process": os.getpid(), "step": row["step"], "rows": digests.pop(row["step"])}
        with open(place, "a") as file:
            file.write(json.dumps(line) + "\n")

    RestartableFeed.__next__, MetricsLog.write_row = read_and_note, write_and_record


def digest_rows(batch):
    """A digest of each row of a batch {key: [B, ...]}, whatever its dtypes."""
    import numpy as np

    columns = [np.asarray(batch[key], np.float64) for key in sorted(batch)]
    return [
        hashlib.sha256(b"".join(column[i].tobytes() for column in columns)).hexdigest()[:16]
        for i in range(len(columns[0]))
    ]


def change_lease():
    from pretrain.processes import process_identity as process
    from pretrain.workdir.leases import lease

    if times := os.environ.get("FAULTY_LEASE"):
        lease.HEARTBEAT, lease.STALE = map(float, times.split(","))
    if name := os.environ.get("FAULTY_MACHINE"):
        process.identify_machine = lambda: (name, name)


KINDS = {
    "kill": die, "wait": wait, "stop": stop, "full": fill, "hang": hang, "slow": slow,
    "gone": put_a_file, "term": term, "twice": twice,
}  # fmt: skip


def during_compile(_, befall):
    import jax
    from jax._src import compiler

    # Programs from the cache are not compiled.
    jax.config.update("jax_enable_compilation_cache", False)
    usual = compiler.compile_or_get_cached

    def compile_or_befall(backend, module, *args, **options):
        if str(module.operation.attributes["sym_name"]).strip('"') == "jit_step":
            if befall is slow:
                befall()
            else:
                threading.Timer(0.2, befall).start()
        return usual(backend, module, *args, **options)

    compiler.compile_or_get_cached = compile_or_befall


def in_data(number, befall):
    from data.pipeline import Stream

    usual = Stream.build_batch

    def build_or_befall(self, step, lo=0, hi=None, together=1):
        if step <= number < step + together:
            befall()
        return usual(self, step, lo, hi, together)

    Stream.build_batch = build_or_befall


def in_step(number, befall):
    from pretrain.training.logger import RunLog

    usual = RunLog.log_step

    def log_step(self, step, metrics):
        if step == number:
            befall()
        return usual(self, step, metrics)

    RunLog.log_step = log_step


def in_evaluation(number, befall):
    import pretrain.training.evaluation as module
    from pretrain.training.context import TrainContext

    feed, evaluate, steps = module.place_evaluation_batches, TrainContext.evaluate_heldout, []

    def note_step(self, params, step):
        steps.append(step)
        return evaluate(self, params, step)

    def befall_in_feed(*args):
        for i, batch in enumerate(feed(*args)):
            if i == 1 and steps[-1] == number:
                befall()
            yield batch

    TrainContext.evaluate_heldout, module.place_evaluation_batches = note_step, befall_in_feed


def after_save(number, befall):
    from pretrain.workdir.checkpoints import Checkpoints

    usual = Checkpoints.save

    def save_then_befall(self, state, *args, **options):
        usual(self, state, *args, **options)
        if int(state.step) == number:
            self.wait_until_saved()
            befall()

    Checkpoints.save = save_then_befall


def before_save(number, befall):
    from pretrain.workdir.checkpoints import Checkpoints

    usual = Checkpoints.save

    def befall_then_save(self, state, *args, **options):
        if int(state.step) == number:
            befall()
        usual(self, state, *args, **options)

    Checkpoints.save = befall_then_save


def before_its_name(number, befall):
    from orbax.checkpoint._src.path.atomicity import AtomicRenameTemporaryPath

    usual = AtomicRenameTemporaryPath.finalize

    async def befall_then_finalize(self):
        if self._final_path.name == str(number):
            befall()
        await usual(self)

    AtomicRenameTemporaryPath.finalize = befall_then_finalize


def before_deleting(number, befall):
    from orbax.checkpoint import CheckpointManager

    usual = CheckpointManager._finalize_checkpoint

    def finalize_then_befall(self, step):
        usual(self, step)
        if step == number:
            befall()

    CheckpointManager._finalize_checkpoint = finalize_then_befall


MOMENTS = {
    "compile": during_compile, "data": in_data, "step": in_step, "last": in_step,
    "evaluate": in_evaluation, "save": before_save, "finish": before_its_name,
    "delete": before_deleting, "saved": after_save,
}  # fmt: skip


def cause_fault(word):
    """Have the fault happen that `KIND:MOMENT[:STEP[:SECONDS]]` names; nothing for "none"."""
    if word == "none":
        return
    kind, moment, *rest = word.split(":")
    fault = KINDS[kind]
    if rest[1:]:
        MOMENTS[moment](int(rest[0]), lambda: threading.Timer(float(rest[1]), fault).start())
    else:
        MOMENTS[moment](int(rest[0]) if rest else None, fault)


if __name__ == "__main__":
    from pretrain.__main__ import main

    change_lease()
    if place := os.environ.get("FAULTY_ROWS"):
        record_rows(place)
    cause_fault(sys.argv[1])
    del sys.argv[1]
    sys.exit(main())
