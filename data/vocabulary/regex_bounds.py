"""Refuse regular expressions of a tokenizer.json that may take exponential time.

The engine of the tokenizers library backtracks: on "xxxx...", `(x+x+)+y` tries each way to divide
the text, and the library ends the thread after ten million attempts. The patterns of released
tokenizers need nothing of the kind: their repetitions are of single characters, one behind the
other. What is allowed here is a little more than that:

- what repeats is a character, a class, or a group that can match in one way only;
- a branch has at most MAX_REPEATED repetitions and MAX_VARIABLE parts that may match or not;
- nothing refers back to a group or calls one.
"""

import re
from typing import NamedTuple

MAX_LENGTH = 2000  # characters of a pattern; the longest released ones have about 600
MAX_DEPTH = 20  # of groups
MAX_REPEATED, MAX_VARIABLE = 3, 12
FEW = 8  # repetitions up to this number are no loop: \p{N}{1,3}
QUANTIFIER = re.compile(r"([*+?]|\{(\d+)?(,)?(\d+)?\})[?+]*")
ESCAPE = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.)", re.S)
GROUP_HEAD = re.compile(r"\?(?::|=|!|>|<=|<!|<\w+>|'\w+'|[imxsa-]+[:)])")
REFERENCES = "123456789kgKRX"  # \1, \k<name>, \g<name>, and what matches several characters


class Branches(NamedTuple):
    """The largest counts among the branches of a group.

    Attributes:
      repeated: number of repetitions of a branch, those of inner groups included.
      variable: number of its parts that may match or not.
      is_fixed: whether there is one branch that matches in one way only.
    """

    repeated: int
    variable: int
    is_fixed: bool


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
            f"the regular expression {shown} is refused, as it may take exponential time: {error}"
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

    def _parse_branches(self, depth: int) -> Branches:
        """Read up to the ) of a group, or the end; return the counts."""
        if depth > MAX_DEPTH:
            raise ValueError(f"it nests groups more than {MAX_DEPTH} deep")
        worst, count, is_fixed = Branches(0, 0, True), 1, True
        repeated = variable = 0
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.pattern[self.at] == "|":
                self.at, count, repeated, variable = self.at + 1, count + 1, 0, 0
                continue
            part = self._parse_part(depth)
            repeated, variable = repeated + part.repeated, variable + part.variable
            is_fixed = is_fixed and part.is_fixed
            if repeated > MAX_REPEATED or variable > MAX_VARIABLE:
                raise ValueError(
                    f"it repeats {repeated} parts one behind the other, and {variable} may be "
                    f"absent; at most {MAX_REPEATED} and {MAX_VARIABLE} are read"
                )
            worst = Branches(max(worst.repeated, repeated), max(worst.variable, variable), False)
        return worst._replace(is_fixed=is_fixed and count == 1)

    def _parse_part(self, depth: int) -> Branches:
        """Read one character, class or group with its quantifier; return the counts."""
        start, is_group = self.at, self.pattern[self.at] == "("
        inner = self._parse_group(depth) if is_group else self._parse_character()
        repeated, variable, is_fixed = inner
        while quantifier := QUANTIFIER.match(self.pattern, self.at):
            self.at = quantifier.end()
            least, most = _read_quantifier(quantifier)
            is_loop = most is None or most > FEW
            if most != 0 and (most is None or most > 1) and not inner.is_fixed:
                raise ValueError(
                    f"it repeats {self.pattern[start : self.at]!r}, which matches in several ways"
                )
            # \d{3} may repeat, and not what contains it: nested counts multiply.
            is_fixed = is_fixed and least == most and not is_loop and not is_group
            inner = inner._replace(is_fixed=is_fixed)
            repeated, variable = repeated + is_loop, variable + (least != most)
        return Branches(repeated, variable, is_fixed)

    def _parse_group(self, depth: int) -> Branches:
        start, self.at = self.at, self.at + 1
        if self.pattern.startswith(("?", "*"), self.at):
            head = GROUP_HEAD.match(self.pattern, self.at)
            if not head:
                raise ValueError(f"{self.pattern[start : start + 8]!r} is no plain group")
            self.at = head.end()
            if head[0].endswith(")"):  # flags for what follows, such as (?i)
                return Branches(0, 0, True)
        counts = self._parse_branches(depth + 1)
        if self.at >= len(self.pattern):
            raise ValueError(f"a ( without ) at character {start + 1}")
        self.at += 1
        return counts

    def _parse_character(self) -> Branches:
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
        return Branches(0, 0, True)

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


def _read_quantifier(match: re.Match[str]) -> tuple[int, int | None]:
    """Return the least and the largest number of repetitions; None is no limit."""
    text, least, comma, most = match.groups()
    if text in ("*", "+", "?"):
        return int(text == "+"), 1 if text == "?" else None
    if not comma:
        return (int(least), int(least)) if least else (0, None)
    return int(least or 0), int(most) if most else None
