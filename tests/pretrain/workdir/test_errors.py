"""What Orbax says besides what it raises is dropped; what anybody else says is not."""

import logging
import sys
from types import FunctionType, SimpleNamespace

import pytest

from pretrain.workdir.errors import NotSaved, hush, reason, writing

LONG = "x" * 400


@pytest.fixture
def heard(monkeypatch):
    """What the hook that was there before is told, after `hush` came twice."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    hush()
    hush()
    return told


async def ours():
    pass


def test_abandoned_reads_are_not_told_and_others_are(heard):
    def tell(thing, text):
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
    theirs, mine = scope["read"](), ours()
    tell(theirs, "Encountered error while reading array index")
    tell(None, "Event loop is closed")
    assert not heard
    tell(mine, "anything")
    tell(None, "another thing")
    assert len(heard) == 2
    theirs.close()
    mine.close()


def full_disk():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("logger", ["absl", "asyncio"])
def test_logs_of_orbax_are_dropped(heard, caplog, logger):
    def passes(path, text, error=None):
        return logging.getLogger(logger).filter(
            logging.LogRecord(
                logger, logging.ERROR, path, 1, text, (), error and (ValueError, error, None)
            )
        )

    assert not passes(
        "/site-packages/orbax/checkpoint/_src/futures/future.py", "raised an exception"
    )
    assert not passes(
        "/lib/asyncio/base_events.py",
        "Task exception was never retrieved: defined at /x/orbax/checkpoint/a.py:188",
    )
    assert not passes(
        "/lib/asyncio/base_events.py",
        "Future exception was never retrieved",
        ValueError("no space [tensorstore_spec='...']"),
    )
    gone = ValueError('RESOURCE_EXHAUSTED: Error writing "1.0.nu/3.0" in OCDBT database')
    assert not passes("/lib/asyncio/base_events.py", "Future exception was never retrieved", gone)
    assert passes(
        "/lib/asyncio/base_events.py", "Task exception was never retrieved", ValueError("another")
    )
    # An error that says nothing of where it comes from, but passed through Orbax.
    for file, told in (("/x/orbax/path.py", False), ("/x/other/path.py", True)):
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
        assert bool(logging.getLogger(logger).filter(record)) == told


def caused(cause):
    """An error with that cause."""
    error = ValueError("while reading {...}")
    error.__cause__ = cause
    return error


def test_the_cause_is_told_in_one_line():
    assert reason(caused(OSError("the file x is gone\nand so on"))) == "OSError: the file x is gone"
    message = r"^/run: a checkpoint was not saved \(ValueError: x{140} \.\.\. .*No space left on device\)\. Earlier checkpoints are unchanged"
    with pytest.raises(NotSaved, match=message), writing("/run"):
        raise ValueError(f"{LONG}: No space left on device [tensorstore_spec='...']")
