"""Pictures that fit: drawn for a wide and for a narrow column; style.css shows the one that can be read. Pure."""

from collections.abc import Callable
from itertools import pairwise

from brokerbed.analysis.report.markup import Html, tag

NARROW = 360.0  # a column on a telephone
LETTER_PX = 7.6  # as wide as letters of the pictures are, in wide typefaces
GAP_PX = 6.0  # between two texts


def fitting(draw: Callable[[float], Html], width: float) -> Html:
    """Two pictures, of which one is seen; `width` is that of the wide one."""
    pictures = (tag("div", draw(width), class_="broad"), tag("div", draw(NARROW), class_="narrow"))
    return tag("div", *pictures, class_="picture large" if width > 2 * NARROW else "picture")


def shortened(text: str, room_px: float) -> str:
    """As much of it as there is room for."""
    letters = max(1, int(room_px / LETTER_PX))
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def apart(texts: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Of texts in the middle of their places, every second or third and so on if they would cover one another."""
    for every in range(1, len(texts)):
        kept = texts[::every]
        if all(
            right - left >= (len(one) + len(other)) / 2 * LETTER_PX + GAP_PX
            for (left, one), (right, other) in pairwise(kept)
        ):
            return kept
    return texts[:1]
