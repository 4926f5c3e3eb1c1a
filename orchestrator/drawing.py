"""Where the brokers of a tree are drawn, in the report and on the live page. Pure.

Levels are rows if the tree is wide, or not so deep. Else they are columns, read like a winding road: to the right,
then back.
"""

from dataclasses import dataclass

from orchestrator.topology import Tree

EDGE = 26.0
WIDEST = 11.0  # link, in pixels
ROWS = 6  # levels that can stand one below the other, however narrow they are
COLUMNS_MAX = 24  # levels side by side before the road turns
NAMED_MAX = 4  # side by side, or names would cover links
LABEL_PX = 30.0  # a broker's name needs so much room


@dataclass(frozen=True, slots=True)
class Layout:
    places: list[tuple[float, float]]
    height: float
    room: float  # between brokers, where it is least
    widest_link: float
    has_names: bool

    def radius(self, most: float) -> float:
        """Of a broker."""
        return max(3.0, min(most, self.room * 0.3))


def layout(tree: Tree, width: float) -> Layout:
    levels = list(zip(tree.level_starts, [*tree.level_starts[1:], len(tree)], strict=True))
    widest = max(stop - start for start, stop in levels)
    is_wide = widest >= len(levels) or (widest > 1 and len(levels) <= ROWS)
    return _rows(levels, widest, width) if is_wide else _columns(levels, widest, width)


def _rows(levels: list[tuple[int, int]], widest: int, width: float) -> Layout:
    room = (width - 2 * EDGE) / widest
    step = max(56.0, min(92.0, room * 0.9))
    places = [
        (EDGE + (width - 2 * EDGE) * (it - start + 0.5) / (stop - start), EDGE + level * step)
        for level, (start, stop) in enumerate(levels)
        for it in range(start, stop)
    ]
    return Layout(places, 2 * EDGE + step * (len(levels) - 1) + 8, room, min(WIDEST, room * 0.5), room >= LABEL_PX)


def _columns(levels: list[tuple[int, int]], widest: int, width: float) -> Layout:
    columns = min(len(levels), COLUMNS_MAX)
    across = (width - 2 * EDGE) / max(1, columns - 1)
    down = min(46.0, max(24.0, across))
    strip = down * widest + (22.0 if widest > 1 else 12.0)
    places = []
    for level, (start, stop) in enumerate(levels):
        turn, column = divmod(level, columns)
        x = EDGE + across * (columns - 1 - column if turn % 2 else column)
        top, high = EDGE + turn * strip, down * widest
        places += [(x, top + high * (it - start + 0.5) / (stop - start)) for it in range(start, stop)]
    height = 2 * EDGE + strip * -(-len(levels) // columns)
    return Layout(
        places, height, min(across, down), min(WIDEST, down * 0.22), across >= LABEL_PX and widest <= NAMED_MAX
    )
