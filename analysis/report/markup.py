"""HTML and SVG as text, escaped by construction: what is not `Html` is text that somebody gave. Pure."""

import re
from collections.abc import Iterable
from html import escape

Attribute = str | float | bool | None
VOID = ("br", "col", "input", "link", "meta", "wbr")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(element: str, *children: str, **attributes: Attribute) -> Html:
    """`class_` is class, `aria_label` is aria-label; an attribute that is None or False is left out."""
    told = "".join(
        f' {_name(key)}="{escape(_value(value))}"' for key, value in attributes.items() if value not in (None, False)
    )
    if not children and (element in VOID or element in _CLOSED):
        return Html(f"<{element}{told}/>")
    return Html(f"<{element}{told}>{joined(children)}</{element}>")


_CLOSED = ("circle", "line", "path", "rect", "use")


def joined(children: Iterable[str]) -> Html:
    return Html("".join(it if isinstance(it, Html) else escape(it, quote=False) for it in children))


def breakable(text: str) -> Html:
    """A name that may go on in the next line after a dot or an underscore."""
    return joined(part for piece in re.split(r"(?<=[._])", text) for part in (piece, Html("<wbr/>")) if piece)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: Attribute) -> str:
    if value is True:
        return ""
    return short(value) if isinstance(value, float) else str(value)


def short(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")
