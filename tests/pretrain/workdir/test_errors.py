"""Log messages of Orbax that repeat an exception are dropped; others are not."""

import logging
import sys
from types import FunctionType, SimpleNamespace

import pytest

from pretrain.workdir.errors import NotSaved, silence_orbax, summarize_error, translate_write_errors

LONG = "x" * 400


@pytest.fixture
def hook_calls(monkeypatch):
    """Return what the previously installed hook receives after `hush` was installed twice."""
    calls = []
    monkeypatch.setattr(sys, "unraisablehook", calls.append)
    silence_orbax()
    silence_orbax()
    return calls


async def previous_hook():
    pass


def test_abandoned_reads_are_not_reported_and_others_are(hook_calls):
    def report_error(thing, text):
        sys.unraisablehook(SimpleNamespace(object=thing, exc_value=RuntimeError(text)))

    scope = {}
    exec(
        compile(
            "async def read():\n    pass\n",
            "/site-packages/orbax/checkpoint/serialization.py",
            "exec",
        ),
        scope,
    )
    theirs, mine = scope["read"](), previous_hook()
    report_error(theirs, "Encountered error while reading array index")
    report_error(None, "Event loop is closed")
    assert not hook_calls
    report_error(mine, "anything")
    report_error(None, "another thing")
    assert len(hook_calls) == 2
    theirs.close()
    mine.close()


def full_disk():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("logger", ["absl", "asyncio"])
def test_logs_of_orbax_are_dropped(hook_calls, caplog, logger):
    def is_passed(path, text, error=None):
        return logging.getLogger(logger).filter(
            logging.LogRecord(
                logger, logging.ERROR, path, 1, text, (), error and (ValueError, error, None)
            )
        )

    assert not is_passed(
        "/site-packages/orbax/checkpoint/_src/futures/future.py", "raised an exception"
    )
    assert not is_passed(
        "/lib/asyncio/base_events.py",
        "Task exception was never retrieved: defined at /x/orbax/checkpoint/a.py:188",
    )
    assert not is_passed(
        "/lib/asyncio/base_events.py",
        "Future exception was never retrieved",
        ValueError("no space [tensorstore_spec='...']"),
    )
    gone = ValueError('RESOURCE_EXHAUSTED: Error writing "1.0.nu/3.0" in OCDBT database')
    assert not is_passed(
        "/lib/asyncio/base_events.py", "Future exception was never retrieved", gone
    )
    assert is_passed(
        "/lib/asyncio/base_events.py", "Task exception was never retrieved", ValueError("another")
    )
    # An error without its origin that passed through Orbax.
    for file, is_reported in (("/x/orbax/path.py", False), ("/x/other/path.py", True)):
        fail = FunctionType(full_disk.__code__.replace(co_filename=file), {})
        with pytest.raises(OSError, match="28") as caught:
            fail()
        error = (OSError, caught.value, caught.tb)
        record = logging.LogRecord(
            logger,
            logging.ERROR,
            "/lib/asyncio/base_events.py",
            1,
            "Future exception was never retrieved",
            (),
            error,
        )
        assert bool(logging.getLogger(logger).filter(record)) == is_reported


def make_caused(cause):
    """An error with that cause."""
    error = ValueError("while reading {...}")
    error.__cause__ = cause
    return error


def test_the_cause_is_reported_in_one_line():
    assert (
        summarize_error(make_caused(OSError("the file x is gone\nand so on")))
        == "OSError: the file x is gone"
    )
    message = r"^/run: a checkpoint was not saved \(ValueError: x{140} \.\.\. .*No space left on device\)\. Earlier checkpoints are unchanged"
    with pytest.raises(NotSaved, match=message), translate_write_errors("/run"):
        raise ValueError(f"{LONG}: No space left on device [tensorstore_spec='...']")
