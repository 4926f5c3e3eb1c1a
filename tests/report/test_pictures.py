"""Parts of the pictures, with values worked out by hand."""

from math import exp, hypot, log10
from pathlib import Path

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.analysis.report import tails
from brokerbed.analysis.report.curves import between
from brokerbed.analysis.report.data import read
from brokerbed.analysis.report.figures import axes_of, charts, quantity
from brokerbed.analysis.report.fitting import NARROW
from brokerbed.analysis.report.markup import Html, tag
from brokerbed.analysis.report.scales import Scale, linear_ticks, log_ticks, number, on_axis, scale
from brokerbed.analysis.report.tails import predicted_shares
from brokerbed.analysis.report.tree import RADIUS_MAX, SMALL, WIDTH, sizes_of, traffic_of
from brokerbed.analysis.series import Sample, connected, longer_than
from brokerbed.scenario import load
from brokerbed.scenario.layout import layout
from brokerbed.scenario.sampling import POINTS_MAX, sampled_pairs, sampled_peers, sampled_points
from brokerbed.scenario.topology import Tree, explicit, levels, regular
from tests.conftest import MINIMAL, FromText
from tests.report.made import FAULTED, SMALL_SWEEP, SWEEP, exact, made


def test_markup_is_escaped_unless_it_is_markup() -> None:
    assert (
        tag("p", "a<b", Html("<i>"), class_="x", title='"', hidden=None) == '<p class="x" title="&quot;">a&lt;b<i></p>'
    )
    assert tag("line", x1=1.25, y1=2.0) == '<line x1="1.2" y1="2"/>'


def test_linear_scale() -> None:
    found = scale([3.0, 97.0], 0.0, 200.0)
    assert (found.low, found.high, found(50.0)) == (0.0, 100.0, 100.0)
    assert linear_ticks(0.0, 100.0) == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]


def test_logarithmic_scale() -> None:
    found = scale([10.0, 700_000.0], 0.0, 500.0, is_log=True)
    assert (found.low, found.high) == (10.0, 1_000_000.0)
    assert found(1000.0) == pytest.approx(200.0)
    assert log_ticks(10.0, 1e6) == pytest.approx([10, 100, 1e3, 1e4, 1e5, 1e6])


def test_logarithmic_axis_ends_close_to_its_values() -> None:
    """13 to 11,000 is not drawn from 10 to 100,000, of which a quarter would be empty."""
    found = scale([13.0, 11_000.0], 0.0, 100.0, is_log=True)
    assert (found.low, found.high) == (10.0, 20_000.0)
    for low, high in ((0.0021, 1.0), (3.0, 70.0), (99.0, 101.0), (1e-6, 3e5), (2.0, 500_001.0)):
        found = scale([low, high], 0.0, 100.0, is_log=True)
        empty = log10(low / found.low) + log10(found.high / high)
        assert found.low <= low < high <= found.high
        assert empty <= 2 * log10(2.5) + 1e-9 or found.high == 10 * found.low  # a step of 2.5 at each end at most


def test_ticks_of_few_decades() -> None:
    assert log_ticks(0.2, 5.0) == pytest.approx([0.2, 0.5, 1.0, 2.0, 5.0])
    assert log_ticks(0.002, 1.0) == pytest.approx([0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    assert log_ticks(20.0, 50_000.0) == pytest.approx([100.0, 1e3, 1e4])


def test_values_that_are_all_the_same_have_a_scale() -> None:
    assert scale([5.0, 5.0], 0.0, 1.0).high > 5.0
    assert scale([], 0.0, 1.0) == Scale(0.0, 1.0, 0.0, 1.0)


def test_numbers_as_people_read_them() -> None:
    assert [number(it) for it in (None, 0.0, 1.0, 82.914, 125165.05, -0.5, 0.0625, 1e-6)] == [
        "–", "0", "1", "82.91", "125,165", "\u22120.5", "0.0625", "1e-06",
    ]  # fmt: skip
    assert [on_axis(it) for it in (0.0, 0.0001, 20000.0, 1e6, 2.5e6)] == ["0", "10⁻⁴", "20,000", "10⁶", "2.5·10⁶"]


def test_longer_than() -> None:
    """Two of four messages took 0.1 to 1 s, one 1 to 10 s, one 10 to 100 s."""
    xs, ys = zip(*longer_than({-1: 2, 0: 1, 1: 1}, 1), strict=True)
    assert xs == pytest.approx((0.1, 1.0, 10.0, 100.0))
    assert ys == (1.0, 0.5, 0.25, 0.0)
    assert list(longer_than({}, 1)) == []


def test_connected() -> None:
    """Connected before the beginning, told so twice, and still connected at the end."""
    moves = [
        ("connected", -5.0),
        ("disconnected", 2.0),
        ("connected", 4.0),
        ("connected", 5.0),
        ("disconnected", 6.0),
        ("connected", 9.0),
    ]
    assert list(connected(moves, 0.0, 10.0)) == [(0.0, 2.0), (4.0, 6.0), (9.0, 10.0)]
    assert list(connected([("disconnected", 1.0), ("connected", 11.0)], 0.0, 10.0)) == []


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (8, 8.0),
        ("62.5ms", 0.0625),
        ("5min", 300.0),
        ("0.5/s", 0.5),
        ("30/min", 0.5),
        ("identity", None),
        (None, None),
        (True, None),
    ],
)
def test_quantity(value: object, wanted: float | None) -> None:
    assert quantity(value) == wanted


def test_tree_of_seven_is_drawn_by_levels(tmp_path: Path) -> None:
    """Levels of one, two and four: each broker stands above the middle of its children."""
    (tmp_path / "s.yaml").write_text(FAULTED)
    (scenario,) = load(tmp_path / "s.yaml").points
    places = layout(scenario.tree, WIDTH).places
    assert [y for _, y in places] == [places[0][1]] + [places[1][1]] * 2 + [places[3][1]] * 4
    assert places[1][0] == pytest.approx((places[3][0] + places[4][0]) / 2)
    assert places[0][0] == pytest.approx((places[1][0] + places[2][0]) / 2)


@pytest.mark.parametrize("width", [WIDTH, SMALL, NARROW])
@pytest.mark.parametrize(
    "tree",
    [*(levels(127, cap) for cap in (1, 2, 4, 8, 16, 32, 64)), regular(3, 4),
     explicit({"top": None, "left": "top", "right": "top", "low": "right", "lower": "low", "lowest": "low"})],
    ids=lambda tree: f"{len(tree)} in {len(tree.level_starts)} levels",
)  # fmt: skip
def test_links_do_not_cross_and_touch_no_other_broker(tree: Tree, width: float) -> None:
    found = layout(tree, width)
    links = [(found.places[child], found.places[int(tree.parents[child])]) for child in range(1, len(tree))]
    for place, one in enumerate(links):
        assert [other for other in links[:place] if crosses(one, other)] == []
    radius = found.radius(RADIUS_MAX)
    near = [(link, it) for link in links for it in found.places if it not in link and distance(it, link) < radius]
    assert near == []


Spot = tuple[float, float]


def side(one: Spot, other: Spot, spot: Spot) -> int:
    """Of the line through two spots: 1 and -1 are its sides, 0 is on it."""
    area = (other[0] - one[0]) * (spot[1] - one[1]) - (other[1] - one[1]) * (spot[0] - one[0])
    return 0 if abs(area) < 1e-6 else 1 if area > 0 else -1


def crosses(one: tuple[Spot, Spot], other: tuple[Spot, Spot]) -> bool:
    return side(*one, other[0]) * side(*one, other[1]) < 0 and side(*other, one[0]) * side(*other, one[1]) < 0


def distance(spot: Spot, link: tuple[Spot, Spot]) -> float:
    (x, y), ((x1, y1), (x2, y2)) = spot, link
    along = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2)
    along = min(1.0, max(0.0, along))
    return hypot(x - x1 - along * (x2 - x1), y - y1 - along * (y2 - y1))


def test_links_that_cross_are_found() -> None:
    assert crosses(((0.0, 0.0), (2.0, 2.0)), ((0.0, 2.0), (2.0, 0.0)))
    assert not crosses(((0.0, 0.0), (2.0, 2.0)), ((0.0, 1.0), (1.0, 2.0)))
    assert distance((1.0, 1.0), ((0.0, 0.0), (2.0, 0.0))) == 1.0


def test_trees_of_127_brokers_have_a_place_for_each(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SWEEP)
    points = load(tmp_path / "s.yaml").points
    for scenario in points[::20]:
        made_ = layout(scenario.tree, WIDTH)
        assert len(set(made_.places)) == 127
        assert all(0 < x < 960 and 0 < y < made_.height < 1000 for x, y in made_.places)
        nearest = min(abs(x - a) + abs(y - b) for x, y in made_.places for a, b in made_.places if (x, y) != (a, b))
        assert nearest >= 2 * made_.radius(RADIUS_MAX)


def test_points_of_a_large_sweep_that_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SWEEP)
    points = load(tmp_path / "s.yaml").points
    chosen = sampled_points(points)
    assert chosen == [10, 30, 50, 70, 90, 110, 130]  # of each width the eleventh of twenty
    assert sampled_points(points[:POINTS_MAX]) == list(range(POINTS_MAX))


def test_peers_and_ways_that_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(FAULTED + "copies: 50\n")
    (scenario,) = load(tmp_path / "s.yaml").points
    assert sampled_pairs(scenario) == [("p", "s")]
    assert sampled_peers(scenario) == [f"{peer}.{copy}" for peer in "ps" for copy in range(8)]


def test_traffic_and_tables_of_the_drawing(tmp_path: Path) -> None:
    """Both ways of a link and all kinds together; both kinds of entries together."""
    report = read(made(tmp_path / "r", FAULTED, exact))
    rows = {
        (row.metric, tuple(row.labels.values())): row.predicted or 0.0
        for row in predict(report.points[0].scenario).rows
    }
    wanted = (
        rows["rate.notifications", ("b3>b1",)]
        + rows["rate.notifications", ("b1>b3",)]
        + rows["rate.control", ("b3>b1",)]
    )
    assert traffic_of(report.points[0])["b3>b1"] == pytest.approx(wanted)
    assert sizes_of(report.points[0])["b2"] == pytest.approx(
        rows["table.remote_entries", ("b2",)] + rows["table.local_entries", ("b2",)]
    )


def test_axes_of_the_papers(tmp_path: Path) -> None:
    """Fig. 3 of Mühl et al.: seven curves over the number of subscriptions, which is logarithmic. MODELS.md has T1 at 1000."""
    report = read(made(tmp_path / "r", SWEEP, exact))
    first = charts(report.points, report.experiment.name)[0]
    assert (first.x_title, first.x_log, first.y_log) == ("number of subscriptions N_s", True, False)
    assert [curve.name for curve in first.curves] == ["T_1", "T_2", "T_4", "T_8", "T_16", "T_32", "T_64"]
    assert dict(first.curves[0].line)[1000.0] == pytest.approx(46404.21, abs=0.01)
    assert next(dot for dot in first.curves[3].dots if dot.x == 10000.0).y == pytest.approx(31701.72, abs=0.01)


def test_saved_rate_is_the_difference_to_flooding(tmp_path: Path) -> None:
    report = read(made(tmp_path / "r", SMALL_SWEEP, exact))
    assert axes_of(report.points).x == "subscriptions.mean_active"
    chart = next(it for it in charts(report.points, "small") if it.title.startswith("Notification rate saved"))
    rate = {
        (point.scenario.routing, point.scenario.at["subscriptions.mean_active"]): row.measured
        for point in report.points for row in point.headline if row.metric == "rate.notifications"
    }  # fmt: skip
    assert [dot.y for dot in chart.curves[0].dots] == pytest.approx(
        [(rate["flooding", it] or 0) - (rate["identity", it] or 0) for it in (10, 100, 1000)]
    )
    assert rate["flooding", 10] == pytest.approx(60.0)  # six links, ten publications per second


def test_predicted_shares_of_a_way(from_text: FromText) -> None:
    """Two exponential queues, with 9/s left in each, one behind the other: (1 + 9 t) exp(-9 t); then 0.1 s on a link."""
    (scenario,) = from_text(f"""{MINIMAL}
topology: {{tree: line, brokers: 2}}
publishers: [{{id: p, broker: b0, topic: t, rate: 1/s, service: {{mean: 100ms}}}}]
subscribers: [{{id: s, broker: b1, topic: t, session_service: {{mean: 100ms}}}}]
links: [{{between: [b0, b1], delay: {{mean: 100ms, law: deterministic}}}}]
""").points
    (way,) = predict(scenario).ways
    shares = dict(predicted_shares(way, 1.2, 0.001))
    for time_s in (0.2, 0.5, 1.0):
        late = time_s - 0.1
        assert shares[min(shares, key=lambda it: abs(it - time_s))] == pytest.approx((1 + 9 * late) * exp(-9 * late))
    assert min(shares.values()) >= 0.001


def test_times_in_queues_and_quantiles(tmp_path: Path) -> None:
    """Two queues with 9/s left in each: 0.1 s or more are found by exp(-0.9) in each, and rings are at the quantiles."""
    text = f"""{MINIMAL}
topology: {{tree: line, brokers: 1}}
publishers: [{{id: p, broker: b0, topic: t, rate: 1/s, service: {{mean: 100ms}}}}]
subscribers: [{{id: s, broker: b0, topic: t, session_service: {{mean: 100ms}}}}]
"""
    curve = ((0.1, 0.4), (1.0, 0.001), (2.0, 0.0))
    samples = [Sample(0, "delay", "p -> s", *at) for at in curve]
    samples += [Sample(0, "delay.stage", name, *at) for name in ("publisher p", "session s") for at in curve]
    (point,) = read(made(tmp_path / "r", text, exact, samples)).points
    drawn = tails.draw(point)
    assert drawn.count("<figure") == 2
    assert drawn.count('class="line s') == 3 * 3  # three curves, at two widths and in the legend
    assert "Times in the queues." in drawn
    assert "session s: mean 0.1111 s, predicted 0.1111 s" in drawn
    erlang = "p -&gt; s: 95% took at most 0.5271 s"  # (1 + 9 t) exp(-9 t) = 0.05
    assert drawn.count(erlang) == drawn.count("99% took at most") > 0
    assert "independent" not in drawn


def test_curves_between_the_points(tmp_path: Path) -> None:
    """On the way from 10 to 1000 subscriptions, evenly on the logarithmic axis; flooding sends 60/s at each place."""
    report = read(made(tmp_path / "r", SMALL_SWEEP, exact))
    found = between(report.folder / "scenario.yaml", report.points)
    flooding = found["rate.notifications", ()]["flooding",]
    assert [y for _, y in flooding] == pytest.approx([60.0] * len(flooding))
    xs = [x for x, _ in flooding]
    assert (xs[0], xs[-1]) == pytest.approx((10.0, 1000.0))
    assert xs[1] / xs[0] == pytest.approx(xs[-1] / xs[-2])


def test_no_curve_where_more_than_the_axis_changes(tmp_path: Path) -> None:
    """What is published goes with the number of subscriptions here: between two points it is nobody's guess."""
    points = "sweep: [{subscriptions.mean_active: 10, publications.rate: 1/s}, {subscriptions.mean_active: 20, publications.rate: 2/s}]"
    text = SMALL_SWEEP[: SMALL_SWEEP.index("sweep:")] + points
    report = read(made(tmp_path / "r", text))
    assert axes_of(report.points).x == "subscriptions.mean_active"
    assert between(report.folder / "scenario.yaml", report.points) == {}
