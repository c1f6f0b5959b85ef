"""Fonts for the texts of pictures: installed ones stand in for letters that the usual one lacks."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import logging
import unicodedata
import warnings
from collections.abc import Iterable, Iterator

# Shows a box with a code for every letter, so it is no remedy.
PLACEHOLDER_FONTS = ("Last Resort",)


def choose_fonts(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the families of fonts for texts, the usual one first, and the letters of no font.

    matplotlib takes each letter from the first family that has it.
    """
    from matplotlib import font_manager, rcParams

    families = list(rcParams["font.family"])
    missing = {letter for letter in set("".join(texts)) if is_visible(letter)}
    for family in families:
        missing -= _find_covered(family, missing)
    if missing:
        _add_new_fonts()
    names = sorted({entry.name for entry in font_manager.fontManager.ttflist})
    names = [name for name in names if not name.startswith(PLACEHOLDER_FONTS)]
    while missing:
        # The first of those that have most of the letters, so that few fonts are mixed.
        covered = {name: _find_covered(name, missing) for name in names}
        best = max(names, key=lambda name: len(covered[name]), default=None)
        if best is None or not covered[best]:
            break
        families.append(best)
        missing -= covered[best]
        names = [name for name in names if covered[name]]
    return families, sorted(missing)


def describe_missing(letters: Iterable[str]) -> str:
    """Return the warning for letters that no installed font has; "" for none."""
    letters = list(letters)
    if not letters:
        return ""
    shown = " ".join(f"{letter} (U+{ord(letter):04X})" for letter in letters[:5])
    more = f" and {len(letters) - 5} more" if len(letters) > 5 else ""
    return (
        f"warning: no installed font has {shown}{more}; the picture shows boxes. "
        "Install a font with these letters, such as Noto Sans CJK for Chinese, Japanese and Korean"
    )


def is_visible(letter: str) -> bool:
    """Return whether a letter needs a glyph: blanks, controls and variation selectors do not."""
    category = unicodedata.category(letter)
    is_blank = category[0] == "Z" or category in ("Cc", "Cf", "Cs")
    return not is_blank and not "\ufe00" <= letter <= "\ufe0f"


@contextlib.contextmanager
def using_fonts(families: list[str]) -> Iterator[None]:
    """Draw all texts with the families that `choose_fonts` returned.

    matplotlib's own messages on missing letters and weights are suppressed: `describe_missing` says
    what matters.
    """
    from matplotlib import rc_context

    with warnings.catch_warnings(), _without_messages(), rc_context({"font.family": families}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Suppress the messages of matplotlib's search for fonts."""
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _find_covered(family: str, letters: set[str]) -> set[str]:
    """Return the letters of the font that matplotlib takes for a family."""
    from matplotlib import font_manager

    try:
        with _without_messages():
            path = font_manager.findfont(
                font_manager.FontProperties(family=[family]), fallback_to_default=False
            )
        font = font_manager.get_font(path)
    except (ValueError, RuntimeError, OSError):  # no such family, or a file that is no font
        return set()
    return {letter for letter in letters if font.get_char_index(ord(letter))}


def _add_new_fonts() -> None:
    """Tell matplotlib of fonts that were installed after it last made its list."""
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            # A file that is no font is passed over, as in matplotlib's own list.
            with contextlib.suppress(RuntimeError, OSError):
                font_manager.fontManager.addfont(path)
