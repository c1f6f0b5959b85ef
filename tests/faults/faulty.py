"""The public command with one fault in it: `python tests/faults/faulty.py KIND:MOMENT[:STEP] VERB ...`. The product knows nothing of this.

kill:compile        while the first step is being compiled         kill:step:N      in step N, after it was started, before it is told
kill:evaluate:N     after the first batch of the evaluation at N   kill:saved:N     as soon as checkpoint N is committed
kill:last:N         as kill:step, at the last step

full:MOMENT:N       then fills the disk that $FAULTY_PLACE names, and the run goes on
"""

import os
import pathlib
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fill():
    place = os.environ["FAULTY_PLACE"]
    free = os.statvfs(place)
    pathlib.Path(place, "ballast").write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - 50_000)))


KINDS = {"kill": die, "full": fill}


def during_compile(_, befall):
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"  # what is only read from the cache is not compiled
    from jax._src import compiler

    usual = compiler.compile_or_get_cached

    def compile(backend, module, *args, **options):
        if str(module.operation.attributes["sym_name"]).strip('"') == "jit_step":
            threading.Timer(0.2, befall).start()
        return usual(backend, module, *args, **options)

    compiler.compile_or_get_cached = compile


def in_step(number, befall):
    from pretrain.log import Log

    usual = Log.step

    def step(self, done, metrics):
        if done == number:
            befall()
        usual(self, done, metrics)

    Log.step = step


def in_evaluation(number, befall):
    import pretrain.evaluate as module
    from pretrain.log import Log

    feed, scores, steps = module.feed_evaluation, Log.scores, []

    def noted(self, evaluate, *args):
        steps.append(self.pending[0])
        scores(self, evaluate, *args)

    def stopping(*args):
        for i, batch in enumerate(feed(*args)):
            if i == 1 and steps[-1] == number:
                befall()
            yield batch

    Log.scores, module.feed_evaluation = noted, stopping


def after_save(number, befall):
    from pretrain.checkpoint import Checkpoints

    usual = Checkpoints.save

    def save(self, state, *args, **options):
        usual(self, state, *args, **options)
        if int(state.step) == number:
            self.wait()
            befall()

    Checkpoints.save = save


MOMENTS = {"compile": during_compile, "step": in_step, "last": in_step, "evaluate": in_evaluation, "saved": after_save}


if __name__ == "__main__":
    kind, moment, *step = sys.argv[1].split(":")
    from pretrain.__main__ import main

    MOMENTS[moment](int(step[0]) if step else None, KINDS[kind])
    sys.exit(main(sys.argv[2:]))
