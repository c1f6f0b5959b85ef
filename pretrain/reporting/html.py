"""A page of HTML that needs nothing but itself: a file of templates/ with its data inside, and a browser told to fetch nothing."""

import json
import pathlib

TEMPLATES = pathlib.Path(__file__).parent / "templates"
MARK = "__DATA__"  # where a template has the data, as JSON in a script that is not run
# As JSON would have them, so that no text can end the script that it stands in.
ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def render_html(name: str, data) -> str:
    """Return the template `name` with its data. Raises ValueError for a number that is not finite, which JSON has no form for."""
    before, after = (TEMPLATES / f"{name}.html").read_text(encoding="utf-8").split(MARK)
    return (
        before
        + json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(
            ESCAPED
        )
        + after
    )
