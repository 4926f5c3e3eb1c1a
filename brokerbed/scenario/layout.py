"""Where the brokers of a tree are drawn, in the report and on the live page. Pure.

Levels are rows, and their brokers stand in the order of their parents, so that links do not cross; each broker is above
the middle of its children. A mere chain winds: to the right, then back.
"""

from dataclasses import dataclass

from brokerbed.scenario.topology import Tree

EDGE = 26.0
WIDEST = 11.0  # link, in pixels
HEIGHT = 640.0  # of a deep tree, about
STEP_MIN, STEP, STEP_MAX = 8.0, 56.0, 92.0  # between two levels
COLUMNS_MAX, COLUMN_MIN = 24, 16.0  # brokers of a chain side by side before it turns, and how close they may be
LABEL_PX = 30.0  # a broker's name needs so much room
RADIUS_MIN = 2.0
Outline = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Layout:
    places: list[tuple[float, float]]
    height: float
    room: float  # between brokers, where it is least
    widest_link: float
    has_names: bool

    def radius(self, most: float) -> float:
        """Of a broker."""
        return max(RADIUS_MIN, min(most, self.room * 0.3))


def layout(tree: Tree, width: float) -> Layout:
    levels = len(tree.level_starts)
    if levels == len(tree):
        return _chain(levels, width)
    slots = _side_by_side(tree)
    room = (width - 2 * EDGE) / (max(slots) + 1)
    step = max(STEP_MIN, min(STEP_MAX, max(STEP, room * 0.9), HEIGHT / levels))
    places = [
        (EDGE + room * (slot + 0.5), EDGE + step * depth)
        for slot, depth in zip(slots, tree.depths.tolist(), strict=True)
    ]
    least = min(room, step)
    return Layout(places, 2 * EDGE + step * (levels - 1) + 8, least, min(WIDEST, least * 0.5), least >= LABEL_PX)


def _chain(levels: int, width: float) -> Layout:
    columns = min(levels, COLUMNS_MAX, int((width - 2 * EDGE) / COLUMN_MIN) + 1)
    across = (width - 2 * EDGE) / max(1, columns - 1)
    down = min(46.0, max(24.0, across))
    strip = down + 12.0
    places = []
    for level in range(levels):
        turn, column = divmod(level, columns)
        x = EDGE + across * (columns - 1 - column if turn % 2 else column)
        places.append((x, EDGE + turn * strip + down / 2))
    height = 2 * EDGE + strip * -(-levels // columns)
    return Layout(places, height, min(across, down), min(WIDEST, down * 0.22), across >= LABEL_PX)


def _side_by_side(tree: Tree) -> list[float]:
    """Each broker above the middle of its children, at least 1 from its neighbours; the first one of all is at 0.

    Reingold and Tilford's way: from the leaves up, subtrees are set side by side as close as their outlines allow. An
    outline is the least and the largest place of each level, the deepest level first.
    """
    children: list[list[int]] = [[] for _ in range(len(tree))]
    for child, parent in enumerate(tree.parents[1:].tolist(), start=1):
        children[parent].append(child)
    outlines: list[Outline] = [[]] * len(tree)
    moved = [0.0] * len(tree)  # against the parent
    for broker in reversed(range(len(tree))):
        shifts, merged = _joined([outlines[child] for child in children[broker]])
        middle = (shifts[0] + shifts[-1]) / 2 if shifts else 0.0
        for child, shift in zip(children[broker], shifts, strict=True):
            moved[child] = shift - middle
        outlines[broker] = [*((low - middle, high - middle) for low, high in merged), (0.0, 0.0)]
    places = [0.0] * len(tree)
    for broker in range(1, len(tree)):
        places[broker] = places[int(tree.parents[broker])] + moved[broker]
    return [place - min(places) for place in places]


def _joined(outlines: list[Outline]) -> tuple[list[float], Outline]:
    """How far each subtree moves to the right, and the outline of them all."""
    shifts: list[float] = []
    merged: Outline = []
    for outline in outlines:
        common = min(len(merged), len(outline))
        shift = max((merged[-at][1] + 1 - outline[-at][0] for at in range(1, common + 1)), default=0.0)
        shifts.append(shift)
        placed = [(low + shift, high + shift) for low, high in outline]
        both = [(merged[at][0], placed[at][1]) for at in range(-common, 0)]
        deeper = merged if len(merged) > common else placed
        merged = [*deeper[: len(deeper) - common], *both]
    return shifts, merged
