"""A drawing of the tree: links as wide as their traffic, brokers coloured by the size of their tables. Pure."""

from collections.abc import Mapping

from brokerbed.analysis.report.data import Point
from brokerbed.analysis.report.fitting import fitting, shortened
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.scales import number
from brokerbed.metrics import CONTROL_MESSAGES, LOCAL_ENTRIES, NOTIFICATIONS, REMOTE_ENTRIES
from brokerbed.scenario.layout import Layout, layout
from brokerbed.scenario.topology import Tree

DRAWN_MAX = 1000  # brokers; larger drawings would be unreadable
WIDTH, SMALL = 960.0, 560.0  # widths of a single drawing, and of one among others
RADIUS_MAX = 13.0
STEPS = 6  # colours for sizes of tables
THINNEST = 0.8


def draw(point: Point, width: float = WIDTH) -> Html:
    """The figure, with a legend that says what widths and colours mean."""
    tree = point.scenario.tree
    if len(tree) > DRAWN_MAX:
        return tag("p", f"{len(tree):,} brokers are too many for a drawing; the tables have them.")
    traffic, sizes = traffic_of(point), sizes_of(point)
    struck = {fault.partition(" ")[2] for fault in point.series.get("fault", {})}
    title = f"{len(tree)} brokers, {point.scenario.routing} routing{_after_moves(point)}"
    caption = tag("figcaption", tag("b", title), " ", point.at)
    picture = fitting(lambda column: _picture(tree, column, traffic, sizes, struck), width)
    most, largest = max(traffic.values(), default=0.0), max(sizes.values(), default=0.0)
    legend = _legend(most, largest, layout(tree, width).widest_link, bool(struck))
    return tag("figure", caption, picture, legend, class_="full")


def draw_first(point: Point, width: float = SMALL) -> Html:
    """The tree before links moved, of which no traffic is measured; nothing if none did."""
    placement = point.summary.get("placement")
    if placement is None or not placement["moves"] or len(point.scenario.tree) > DRAWN_MAX:
        return Html("")
    tree = point.first_scenario.tree
    caption = tag("figcaption", tag("b", "The tree at the beginning"), _cost(placement["cost_initial"]))
    picture = fitting(lambda column: _picture(tree, column, {}, {}, set()), width)
    return tag("figure", caption, picture, class_="full")


def _after_moves(point: Point) -> str:
    """What to say of a tree to which links have moved."""
    placement = point.summary.get("placement")
    if placement is None or not placement["moves"]:
        return ""
    moves = "1 move" if placement["moves"] == 1 else f"{placement['moves']:,} moves"
    return f", after {moves}{_cost(placement['cost_final'])}"


def _cost(per_s: float | None) -> str:
    return "" if per_s is None else f"; by the models, its traffic costs {number(per_s)} per second"


def _picture(
    tree: Tree, width: float, traffic: Mapping[str, float], sizes: Mapping[str, float], struck: set[str]
) -> Html:  # fmt: skip
    """Links without `traffic` and brokers without `sizes` are drawn without figures."""
    placed = layout(tree, width)
    most, largest = max(traffic.values(), default=0.0), max(sizes.values(), default=0.0)
    links = [_link(tree, child, placed, traffic, most, struck) for child in range(1, len(tree))]
    brokers = [_broker(tree, broker, placed, sizes, largest, struck) for broker in range(len(tree))]
    title = tag("title", f"The tree of {len(tree)} brokers; the tables of links and brokers have the same figures")
    return tag("svg", title, *links, *brokers, viewBox=f"0 0 {width:g} {placed.height:.0f}", role="img", class_="tree")


def traffic_of(point: Point) -> dict[str, float]:
    """Messages per second on each link, in both directions; links are named from the child's end."""
    parents = dict(point.scenario.tree.links)
    traffic = {f"{child}>{parent}": 0.0 for child, parent in parents.items()}
    for metric in (NOTIFICATIONS, CONTROL_MESSAGES):
        for link, rate in point.values(metric).items():
            sender, _, receiver = link.partition(">")
            name = link if parents.get(sender) == receiver else f"{receiver}>{sender}"
            if name in traffic:  # a link that moved after the measured time is not in the last tree
                traffic[name] += rate
    return traffic


def sizes_of(point: Point) -> dict[str, float]:
    """The entries in the table of each broker, remote and local."""
    sizes = dict.fromkeys(point.scenario.tree.names, 0.0)
    for metric in (REMOTE_ENTRIES, LOCAL_ENTRIES):
        for broker, entries in point.values(metric).items():
            sizes[broker] += entries
    return sizes


def _link(
    tree: Tree, child: int, placed: Layout, traffic: Mapping[str, float], most: float, struck: set[str]
) -> Html:  # fmt: skip
    ends = tree.names[child], tree.names[int(tree.parents[child])]
    rate = traffic.get(">".join(ends))
    (x1, y1), (x2, y2) = placed.places[child], placed.places[int(tree.parents[child])]
    is_cut = any(sign.join(direction) in struck for sign in "->" for direction in (ends, ends[::-1]))
    link_width = THINNEST + (placed.widest_link - THINNEST) * (rate / most if most and rate else 0.0)
    words = f"{ends[0]} – {ends[1]}" + ("" if rate is None else f": {number(rate)} messages/s")
    title = tag("title", words + (", was cut" if is_cut else ""))
    line = tag("line", title, x1=x1, y1=y1, x2=x2, y2=y2, class_="link", stroke_width=round(link_width, 2))
    if not is_cut:
        return line
    cut = tag("text", "✕", x=(x1 + x2) / 2, y=(y1 + y2) / 2 + 5, class_="fault mid", aria_hidden="true")
    return joined((line, cut))


def _broker(
    tree: Tree, broker: int, placed: Layout, sizes: Mapping[str, float], largest: float, struck: set[str]
) -> Html:  # fmt: skip
    name, (x, y) = tree.names[broker], placed.places[broker]
    size, was_struck = sizes.get(name), name in struck
    title = name + ("" if size is None else f": {number(size)} entries") + (", hit by a fault" if was_struck else "")
    radius = placed.radius(RADIUS_MAX)
    parts = [
        tag("title", title),
        tag("circle", cx=x, cy=y, r=radius, class_=f"broker q{step_of(size or 0.0, largest)}"),
    ]
    if was_struck:
        radius += 4
        parts.append(tag("circle", cx=x, cy=y, r=radius, class_="off"))
    if placed.has_names:
        parts.append(tag("text", shortened(name, placed.room - 4), x=x, y=y + radius + 12, class_="label mid"))
    return tag("g", *parts)


def step_of(size: float, largest: float) -> int:
    return min(STEPS - 1, int(size / largest * STEPS)) if largest else 0


def _legend(most: float, largest: float, widest: float, has_faults: bool) -> Html:
    items = []
    for share in (0.1, 0.5, 1.0):
        link_width = round(THINNEST + (widest - THINNEST) * share, 1)
        line = tag("line", x1=2.0, x2=34.0, y1=8.0, y2=8.0, class_="link", stroke_width=link_width)
        items.append(tag("li", _sample(36, line), f"{number(most * share)}/s"))
    for step in range(STEPS if largest else 0):
        dot = tag("circle", cx=8.0, cy=8.0, r=6.5, class_=f"broker q{step}")
        low, high = largest * step / STEPS, largest * (step + 1) / STEPS
        items.append(tag("li", _sample(16, dot), f"{number(low)}–{number(high)}"))
    if has_faults:
        ring = tag("circle", cx=8.0, cy=8.0, r=6.0, class_="off")
        items.append(tag("li", _sample(16, ring), "ring or ✕: hit by a fault"))
    words = tag("p", "Links: messages per second, both ways. Brokers: entries of the routing table.", class_="small")
    return joined((words, tag("ul", *items, class_="legend")))


def _sample(width: int, part: Html) -> Html:
    return tag("svg", part, viewBox=f"0 0 {width} 16", width=str(width), height="16", aria_hidden="true")
