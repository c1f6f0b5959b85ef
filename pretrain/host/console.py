"""A `rich` console for colours and tables that shows texts literally and escaped."""

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pretrain.host.terminal import escape, get_raw_stream


def make_console(stderr: bool = False) -> Console:
    """Return a console on the standard output or error.

    "[red]" and ":smile:" in a text are shown as they are: styles are given by `style=` and by
    `Text`. Pass `Text` escaped texts: it drops some control characters, which should be seen.
    """
    return _EscapingConsole(
        file=get_raw_stream(sys.stderr if stderr else sys.stdout),
        markup=False,
        emoji=False,
        highlight=False,
    )


class _EscapingConsole(Console):
    """Escapes strings before they are laid out, so that columns fit what is shown."""

    def render_str(self, text: str, **options: Any) -> Text:  # pyright: ignore[reportIncompatibleMethodOverride] - the same arguments
        return super().render_str(escape(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:  # rich's own movements of the cursor
                yield segment
            else:
                yield Segment(escape(segment.text), segment.style)
