"""Bad examples of labelled files: an error each, or skipped, counted and reported."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

REMEDY = "--on-bad-example skip leaves such examples out"


class BadExamples:
    """What becomes of the bad examples of one source.

    Attributes:
      skip: whether they are skipped.
      count: number of skipped examples.
      first: the error of the first one.
    """

    def __init__(self, source: str, skip: bool = False) -> None:
        self.source, self.skip = source, skip
        self.count, self.first = 0, ""

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Skip or refuse an example whose reading raises ValueError.

        Raises:
          ValueError: the example is refused; the message names the remedy.
        """
        try:
            yield
        except ValueError as error:
            if not self.skip:
                raise ValueError(f"{error}; {REMEDY}") from None
            self.count += 1
            self.first = self.first or str(error)

    def describe(self) -> str:
        """Return how many examples were skipped, and the error of the first; "" for none."""
        if not self.count:
            return ""
        return f"skipped {self.count:,} bad examples, the first: {self.first}"

    def report(self) -> None:
        """Print how many examples were skipped to the standard error, unless there are none."""
        if self.count:
            print(f"{self.source}: {self.describe()}", file=sys.stderr)


@contextlib.contextmanager
def guard_example(bad: BadExamples | None) -> Iterator[None]:
    """Guard the reading of an example; without `bad`, its error is raised as it is."""
    with bad.guard() if bad else contextlib.nullcontext():
        yield


def raise_if_empty(source: str, what: str, found: list, bad: BadExamples | None) -> None:
    """Raise ValueError if a source has no examples, or none that is not bad."""
    if not found:
        reason = f"; {described}" if bad and (described := bad.describe()) else ""
        raise ValueError(f"{source}: no {what} in it{reason}")


def keep_good(
    examples: Sequence[Any], check: Callable[[Any], Any], bad: BadExamples | None
) -> list[Any]:
    """Return the examples for which `check` raises no ValueError; see `guard_example`."""
    good = []
    for example in examples:
        with guard_example(bad):
            check(example)
            good.append(example)
    return good
