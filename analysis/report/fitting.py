"""Responsive pictures: each is drawn for a wide and for a narrow column, and style.css shows one of them. Pure."""

from collections.abc import Callable
from itertools import pairwise

from brokerbed.analysis.report.markup import Html, tag

NARROW = 360.0  # the width of a column on a phone
LETTER_PX = 7.6  # the width of a letter in wide typefaces
GAP_PX = 6.0  # between two texts


def fitting(draw: Callable[[float], Html], width: float) -> Html:
    """Both versions of a picture; `width` is that of the wide one."""
    pictures = (tag("div", draw(width), class_="broad"), tag("div", draw(NARROW), class_="narrow"))
    return tag("div", *pictures, class_="picture large" if width > 2 * NARROW else "picture")


def shortened(text: str, room_px: float) -> str:
    """The text, cut off if it does not fit."""
    letters = max(1, int(room_px / LETTER_PX))
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def without_overlaps(texts: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Every text, or every second, third and so on, such that centred texts do not overlap."""
    for every in range(1, len(texts)):
        kept = texts[::every]
        if all(
            right - left >= (len(left_text) + len(right_text)) / 2 * LETTER_PX + GAP_PX
            for (left, left_text), (right, right_text) in pairwise(kept)
        ):
            return kept
    return texts[:1]
