"""Render self-contained HTML pages: a file of templates/ with its data inlined.

The page's content security policy forbids the browser to fetch anything.
"""

import html
import json
import pathlib
from typing import Any

from data.corpus.untrusted import open_regular
from pretrain.host.terminal import escape

TEMPLATES = pathlib.Path(__file__).parent / "templates"
# A template has this placeholder in a script element of type application/json.
DATA_PLACEHOLDER = "__DATA__"
# Escaped as JSON allows: what could close the script element around the data, and the halves of
# characters, which UTF-8 lacks and Python makes of the names of files that are not UTF-8.
ESCAPED = (*map(ord, "<>&\u2028\u2029"), *range(0xD800, 0xE000))
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in ESCAPED}


def render_html(name: str, data: Any) -> str:
    """Return the template `name` with its data.

    Raises:
      ValueError: if the data has a number that is not finite, which JSON cannot represent.
    """
    before, after = (TEMPLATES / f"{name}.html").read_text(encoding="utf-8").split(DATA_PLACEHOLDER)
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return before + text.translate(JSON_ESCAPES) + after


def is_page(path: pathlib.Path, name: str) -> bool:
    """Return whether a file is a page of the template `name`: its head up to the style is."""
    head = (TEMPLATES / f"{name}.html").read_text(encoding="utf-8").partition("<style>")[0].encode()
    try:
        with open_regular(path) as file:
            return file.read(len(head)) == head
    except (OSError, ValueError):  # absent, or not a regular file
        return False


def escape_name(name: str) -> str:
    """Return a name of a file or a workdir as text of HTML or SVG.

    A name may have control characters, which XML lacks, and bytes that are not UTF-8.
    """
    return html.escape(escape(name))
