"""A command in a process with bounds, and what it took beyond its imports: `python
tests/faults/measured.py VERB ...` prints one line of JSON at its end.
"""

import contextlib
import io
import json
import pathlib
import re
import resource
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
MOST_BYTES, MOST_SECONDS = 3 << 30, 60  # beyond which the system ends the process


def read_status(name):
    """The kilobytes of an entry of /proc/self/status."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", text)[1])


@contextlib.contextmanager
def bound_resources(more=MOST_SECONDS):
    """Let the process have MOST_BYTES more of addresses, and `more` seconds of the processor."""
    size = read_status("VmSize") * 1024 + MOST_BYTES
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + int(more)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    yield


def measure(call):
    """Return (result, seconds of this process, megabytes at the peak beyond those before)."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is what is used now
    before, began = read_status("VmHWM"), time.process_time()
    result = call()
    return result, time.process_time() - began, (read_status("VmHWM") - before) / 1024


def run_verb(words):
    """Return (exit status, output) of a command in this process."""
    from pretrain.__main__ import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = main(words)
        except SystemExit as error:
            status = error.code
        except BaseException:
            traceback.print_exc()
            status = "traceback"
    return status, output.getvalue()


def import_all():
    """Import what an import of a folder imports, and let the libraries initialize themselves."""
    import pretrain.cli.import_
    import pretrain.convert.read_write
    import pretrain.training.new_workdir
    import pretrain.training.state

    del pretrain


if __name__ == "__main__":
    import_all()
    with bound_resources():
        (status, output), seconds, megabytes = measure(lambda: run_verb(sys.argv[1:]))
    print(
        json.dumps({"status": status, "output": output, "seconds": seconds, "megabytes": megabytes})
    )
