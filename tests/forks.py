"""Processes of this Python that start with JAX, TensorFlow and Orbax imported: forks of
tests/fork_server.py.

The imports take most of a short run's time. `Popen` and `run` are `subprocess`'s for
`[sys.executable, ...]`: the process is a child of the caller, with the streams, folder,
environment, session and arguments that it is given, and ends as Python does. Where it would import
otherwise, because a variable differs that the libraries read as they are imported, `subprocess`
starts it, as it starts every other program.
"""

import atexit
import ctypes
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings

SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <sys/prctl.h>
AT_IMPORT = ("JAX_", "XLA_", "TF_", "GLIBC_", "LD_", "OMP_", "PYTHON")
# Of these variables: read only when processes join, or set by `become` itself.
LATER = (
    *("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    *("JAX_NUM_CPU_DEVICES", "PYTHONUNBUFFERED"),
)
_server: list = []  # the path of this process's server, and the settings of its imports
is_fork = False


def import_settings(environment) -> dict[str, str]:
    """Return the variables that affect an import; pretrain/__main__.py sets the first if it is not
    set.
    """
    return {"TF_ENABLE_ONEDNN_OPTS": "0"} | {
        name: value
        for name, value in environment.items()
        if name.startswith(AT_IMPORT) and name not in LATER
    }


def prepare_server():
    """Start this process's server if none runs, for a test that measures time."""
    if sys.platform == "linux" and not is_fork and not _server:
        _server.extend((start_server(), import_settings(os.environ)))


def start_server() -> str:
    """Start a server that ends with this process, and return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="forks")
    place = str(pathlib.Path(folder) / "socket")
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-m", "tests.fork_server", place]
    root = pathlib.Path(__file__).parents[1]
    server = subprocess.Popen(words, stdin=theirs, cwd=root, start_new_session=True)
    theirs.close()
    assert ours.recv(1) == b".", "tests/fork_server.py did not start"

    def stop_server():
        ours.close()
        server.wait()
        os.unlink(place)
        os.rmdir(folder)

    atexit.register(stop_server)
    return place


def is_forkable(args, environment) -> bool:
    """Return whether a fork can replace the process of these arguments of `Popen`."""
    if sys.platform != "linux" or list(args)[:1] != [sys.executable]:
        return False
    prepare_server()
    return import_settings(environment) == (import_settings(os.environ) if is_fork else _server[1])


class Popen(subprocess.Popen):
    """`subprocess.Popen` that forks where possible."""

    def __init__(self, args, *, start_new_session=False, **options):
        self._has_session = start_new_session
        super().__init__(args, start_new_session=start_new_session, **options)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        environment = dict(os.environ if env is None else env)
        if executable or preexec_fn or not is_forkable(args, environment):
            return super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest
            )
        request = {
            "words": [os.fspath(word) for word in list(args)[1:]],
            "folder": os.fspath(cwd or os.getcwd()),
            "environment": environment,
            "session": self._has_session,
        }
        # After the first three, which are for Windows, come the two ends of each pipe, -1 for none.
        stdin, stdin_end, stdout_end, stdout, stderr_end, stderr = pipes = rest[3:9]
        streams = [own if own != -1 else i for i, own in enumerate((stdin, stdout, stderr))]
        try:
            self.pid = (
                fork_child(request, streams)
                if is_fork
                else ask_server(_server[0], request, streams)
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


def run(args, *, capture_output=False, timeout=None, **options):
    """`subprocess.run` with the `Popen` above."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


def fork_child(request, streams) -> int:
    """Fork the requested process and return its pid."""
    with warnings.catch_warnings():  # no imported thread holds a lock
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        become_program(request, streams)
    return pid


def ask_server(place, request, streams) -> int:
    """Return the pid of a fork of the server, which is a child of this process."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(place)
        assert prctl(SET_SUBREAPER, 1, 0, 0, 0) == 0
        try:
            text = json.dumps(request).encode()
            socket.send_fds(server, [len(text).to_bytes(8, "little")], streams)
            server.sendall(text)
            answer = server.recv(8, socket.MSG_WAITALL)
        finally:
            assert prctl(SET_SUBREAPER, 0, 0, 0, 0) == 0
    assert len(answer) == 8, "tests/fork_server.py has ended"
    return int.from_bytes(answer, "little")


def become_program(request, streams):
    """Become the requested process in a new fork; never return."""
    global is_fork
    is_fork = True
    for i, stream in enumerate([os.dup(stream) for stream in streams]):
        os.dup2(stream, i)
    os.closerange(3, 4096)
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if count := os.environ.get("JAX_NUM_CPU_DEVICES"):
        import jax

        jax.config.update("jax_num_cpu_devices", int(count))
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True, write_through=True)
    status = 1
    try:
        execute_command(request["words"])
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if status and not isinstance(ending.code, int):
            print(ending.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


def execute_command(words):
    """Run `python WORDS`."""
    how, *rest = words
    if "local" in rest[:2]:  # whose own processes are forks too
        subprocess.Popen = Popen
    if how == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, str(pathlib.Path(how).parent)
        runpy.run_path(how, run_name="__main__")
