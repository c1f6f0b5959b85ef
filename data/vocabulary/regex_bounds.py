"""Refuse regular expressions of a tokenizer.json that may take exponential or cubic time.

The engine of the tokenizers library backtracks: on "xxxx...", `(x+x+)+y` tries each way to divide
the text, and `x*x*[yz]` takes minutes for 5,000 letters. The patterns of released tokenizers need
nothing of the kind: their repetitions are of single characters, and what follows one seldom fails.
What is allowed here is a little more than that:

- what repeats is a character, a class, or a group that can match in one way only;
- a part that may fail follows at most MAX_LOOPS repetitions in its branch, which are then tried
  shorter: a match takes time in proportion to the text, and all matches to its square;
- a branch can match in at most MAX_WAYS ways that do not differ in the lengths of repetitions;
- nothing refers back to a group or calls one.
"""

import re
from typing import NamedTuple

MAX_LENGTH = 2000  # characters of a pattern; the longest released ones have about 600
MAX_DEPTH = 20  # of groups
MAX_LOOPS, MAX_WAYS = 1, 50
FEW = 8  # repetitions up to this number are no loop: \p{N}{1,3}
QUANTIFIER = re.compile(r"([*+?]|\{(\d+)?(,)?(\d+)?\})[?+]*")
ESCAPE = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.)", re.S)
GROUP_HEAD = re.compile(r"\?(?::|=|!|>|<=|<!|<\w+>|'\w+'|[imxsa-]+[:)])")
REFERENCES = "123456789kgKRX"  # \1, \k<name>, \g<name>, and what matches several characters


class Cost(NamedTuple):
    """What a part of a pattern may cost, for the most costly of its branches.

    Attributes:
      loops: number of its repetitions, inner groups included.
      tried: number of repetitions that are tried shorter where a later part fails.
      ways: number of ways to match, where each repetition counts as one.
      is_fixed: whether it has one branch, which matches in one way only.
    """

    loops: int
    tried: int
    ways: int
    is_fixed: bool


ONE = Cost(0, 0, 1, True)  # of a character


def check_pattern(pattern: str) -> None:
    """Raise ValueError, which names the pattern and the part of it, if it may take too long."""
    shown = repr(pattern if len(pattern) <= 100 else pattern[:100] + "...")
    if len(pattern) > MAX_LENGTH:
        raise ValueError(
            f"the regular expression {shown} has {len(pattern):,} characters; at most "
            f"{MAX_LENGTH:,} are read"
        )
    try:
        _Parser(pattern).parse_all()
    except ValueError as error:
        raise ValueError(
            f"the regular expression {shown} is refused, as it may take too long: {error}"
        ) from None


class _Parser:
    """A reader of a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def parse_all(self) -> None:
        """Check the whole pattern."""
        self._parse_branches(0)
        if self.at < len(self.pattern):
            raise ValueError(f"a ) without ( at character {self.at + 1}")

    def _parse_branches(self, depth: int) -> Cost:
        """Read up to the ) of a group, or the end; return the cost."""
        if depth > MAX_DEPTH:
            raise ValueError(f"it nests groups more than {MAX_DEPTH} deep")
        branches = [ONE]
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.pattern[self.at] == "|":
                self.at += 1
                branches.append(ONE)
                continue
            branches[-1] = _join(branches[-1], *self._parse_part(depth))
        return Cost(
            loops=max(branch.loops for branch in branches),
            tried=max(branch.tried for branch in branches),
            ways=sum(branch.ways for branch in branches),
            is_fixed=len(branches) == 1 and branches[0].is_fixed,
        )

    def _parse_part(self, depth: int) -> tuple[Cost, bool]:
        """Read one character, class or group with its quantifier.

        Returns:
          its cost, and whether it may fail.
        """
        start, is_group = self.at, self.pattern[self.at] == "("
        cost = self._parse_group(depth) if is_group else self._parse_character()
        may_fail = True
        while quantifier := QUANTIFIER.match(self.pattern, self.at):
            self.at = quantifier.end()
            least, most = _read_quantifier(quantifier)
            is_loop = most is None or most > FEW
            if most != 0 and (most is None or most > 1) and not cost.is_fixed:
                raise ValueError(
                    f"it repeats {self.pattern[start : self.at]!r}, which matches in several ways"
                )
            may_fail = may_fail and least > 0
            cost = Cost(
                loops=cost.loops + is_loop,
                tried=cost.tried,
                ways=cost.ways + (0 if is_loop or most is None else max(most - least, 0)),
                # \d{3} may repeat, and not what contains it: nested counts multiply.
                is_fixed=cost.is_fixed and least == most and not is_loop and not is_group,
            )
        return cost, may_fail

    def _parse_group(self, depth: int) -> Cost:
        start, self.at = self.at, self.at + 1
        if self.pattern.startswith(("?", "*"), self.at):
            head = GROUP_HEAD.match(self.pattern, self.at)
            if not head:
                raise ValueError(f"{self.pattern[start : start + 8]!r} is no plain group")
            self.at = head.end()
            if head[0].endswith(")"):  # a(?i)b|c is a(?i:b|c): the rest is a group
                return self._parse_branches(depth + 1)
        counts = self._parse_branches(depth + 1)
        if self.at >= len(self.pattern):
            raise ValueError(f"a ( without ) at character {start + 1}")
        self.at += 1
        return counts

    def _parse_character(self) -> Cost:
        sign = self.pattern[self.at]
        if sign == "[":
            self._skip_class()
        elif sign == "\\":
            match = ESCAPE.match(self.pattern, self.at)
            if not match or match[0][1] in REFERENCES:
                raise ValueError(f"{self.pattern[self.at : self.at + 3]!r} is not read")
            self.at = match.end()
        else:
            self.at += 1
        return ONE

    def _skip_class(self) -> None:
        """Read a class, which may contain others: [^\\s[a-z]&&[b]]."""
        start, depth = self.at, 0
        while self.at < len(self.pattern):
            sign = self.pattern[self.at]
            if sign == "\\":
                self.at += 1
            elif sign == "[":
                depth += 1
                self.at += self.pattern.startswith("^", self.at + 1)
                self.at += self.pattern.startswith("]", self.at + 1)  # the first one is a member
            elif sign == "]":
                depth -= 1
            self.at += 1
            if depth == 0:
                return
        raise ValueError(f"a [ without ] at character {start + 1}")


def _join(before: Cost, part: Cost, may_fail: bool) -> Cost:
    """Return the cost of a branch with one more part; raise ValueError if it is too high.

    Where the part fails, each repetition before it is tried shorter.
    """
    tried = max(before.tried, part.tried + (before.loops if may_fail else 0))
    ways = before.ways * part.ways
    if tried > MAX_LOOPS:
        raise ValueError(
            f"a part of it that may fail follows {tried} repetitions; at most {MAX_LOOPS} is read"
        )
    if ways > MAX_WAYS:
        raise ValueError(f"a branch of it may match in {ways:,} ways; at most {MAX_WAYS} are read")
    return Cost(before.loops + part.loops, tried, ways, before.is_fixed and part.is_fixed)


def _read_quantifier(match: re.Match[str]) -> tuple[int, int | None]:
    """Return the least and the largest number of repetitions; None is no limit."""
    text, least, comma, most = match.groups()
    if text in ("*", "+", "?"):
        return int(text == "+"), 1 if text == "?" else None
    if not comma:
        return (int(least), int(least)) if least else (0, None)
    return int(least or 0), int(most) if most else None
