"""HTML and SVG as text. Everything that is not `Html` is escaped. Pure."""

import re
from collections.abc import Iterable
from html import escape

Attribute = str | float | bool | None
VOID = ("br", "col", "input", "link", "meta", "wbr")


class Html(str):
    """Text that is markup, and needs no escaping."""

    __slots__ = ()


def tag(element: str, *children: str, **attributes: Attribute) -> Html:
    """`class_` is class, `aria_label` is aria-label; an attribute that is None or False is left out."""
    attribute_text = "".join(
        f' {_name(key)}="{escape(_value(value))}"' for key, value in attributes.items() if value not in (None, False)
    )
    if not children and (element in VOID or element in _CLOSED):
        return Html(f"<{element}{attribute_text}/>")
    return Html(f"<{element}{attribute_text}>{joined(children)}</{element}>")


_CLOSED = ("circle", "line", "path", "rect", "use")


def joined(children: Iterable[str]) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child, quote=False) for child in children))


def breakable(text: str) -> Html:
    """A name in which a line may break after a dot or an underscore."""
    return joined(part for piece in re.split(r"(?<=[._])", text) for part in (piece, Html("<wbr/>")) if piece)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: Attribute) -> str:
    if value is True:
        return ""
    return short(value) if isinstance(value, float) else str(value)


def short(value: float) -> str:
    """A coordinate, rounded to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
