"""What reaches the terminal: text shown with its control characters escaped.

Texts, vocabularies, labels and names of files come from others. A terminal obeys control sequences
in them: it retitles its window, hides or overwrites lines, or answers as if the user had typed.
`main` replaces the standard output and error by streams that escape, so that no command, library
or traceback can forget to. Only this program's own drawing goes past them, by `erase_line` and
`console.make_console`.

A character is escaped as in JSON (`\\u001b`), so that lines of JSON keep their values exactly.
Pipes and files get the same text as a terminal, since someone may show them on one later.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from pretrain.host.lost_output import GuardedStream

# Characters that act on a terminal or on the order of the text around them, or that hide:
HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f"  # C0 but for tab and line feed
    "\x7f-\x9f"  # DEL and C1, among them the one-character CSI
    "\u200b\u2060-\u2064\ufeff\u180e"  # invisible, without a use in a line of text
    "\u202a-\u202e\u2066-\u206f"  # embeddings, overrides and isolates of text direction
    "\u2028\u2029\ufff9-\ufffb"  # separators of lines and paragraphs, annotations
    "\U000e0000-\U000e007f"  # tags
    "\ud800-\udfff"  # bytes of a file name that are not UTF-8; no encoding has them
    "]"
)
MAX_ERROR = 1500  # characters of an error: a message may quote a value of megabytes
ERASE_LINE = "\r\x1b[K"
NOTEBOOK_WIDTH = 110  # characters of the longest line of progress, and more


def escape(text: str) -> str:
    """Return a text with escaped control characters; line feeds and tabs stay.

    Characters of scripts stay, such as joiners and the marks of right-to-left text. What is escaped
    already stays as it is.
    """
    return HIDDEN.sub(_escape_match, text)


def escape_line(text: object) -> str:
    """Return a value's text on one line: as `escape`, and with escaped line feeds."""
    return escape(str(text)).replace("\n", "\\n")


def escape_strings(value: Any) -> Any:
    """Return a JSON value with `escape` applied to each of its strings, but for keys."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {key: escape_strings(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_strings(item) for item in value]
    return value


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:  # two units, as in JSON
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


class EscapingStream:
    """A text stream that escapes what is written to it, and else behaves as the one below it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the escaped text; return the number of characters before escaping."""
        self.stream.write(escape(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "stream":  # before `__init__`, as a profiler or `copy` sees it
            raise AttributeError(name)
        return getattr(self.stream, name)


def escape_output() -> tuple[TextIO, TextIO]:
    """Escape from now on what is written to the standard output and error.

    Returns:
      The two streams as they were, with which a caller may restore them.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _make_escaping(sys.stdout), _make_escaping(sys.stderr)
    return before


def _make_escaping(stream: Any) -> Any:
    """Return a stream that escapes. A process may have none, and one may escape already."""
    if stream is None or isinstance(stream, EscapingStream):
        return stream
    return EscapingStream(stream)


def get_raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below an escaping one, for control sequences of the program itself."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def is_redrawable(stream: TextIO) -> bool:
    """Return whether a line can be replaced: on a terminal, and below a cell of a notebook."""
    return stream.isatty() or _is_notebook(stream)


def erase_line(stream: TextIO) -> None:
    """Erase the line of the cursor, which moves to its beginning."""
    # Notebooks know the carriage return and no control sequence: blanks replace what was there.
    erase = f"\r{' ' * NOTEBOOK_WIDTH}\r" if _is_notebook(stream) else ERASE_LINE
    get_raw_stream(stream).write(erase)


def _is_notebook(stream: TextIO) -> bool:
    """Return whether a stream belongs to a kernel, which a notebook shows below the cell."""
    below: Any = get_raw_stream(stream)
    below = below.stream if isinstance(below, GuardedStream) else below
    return type(below).__module__.partition(".")[0] == "ipykernel"


def print_notice(text: str) -> None:
    """Print lines to the standard error, escaped also where `escape_output` was not called."""
    print(escape(text), file=sys.stderr, flush=True)


def print_error(error: object) -> None:
    """Print "error: ..." on one line to the standard error, a long one without its middle."""
    line = escape_line(error)
    if len(line) > MAX_ERROR:
        half = MAX_ERROR // 2
        line = f"{line[:half]} ... ({len(line) - 2 * half:,} characters) ... {line[-half:]}"
    print(f"error: {line}", file=sys.stderr, flush=True)
