"""Comparisons of routing algorithms in the report, with values worked out by hand."""

from pathlib import Path

import pytest

from brokerbed import shipped
from brokerbed.analysis.report.bars import Bar, BarChart, draw
from brokerbed.analysis.report.chart import Chart, Curve
from brokerbed.analysis.report.data import read
from brokerbed.analysis.report.figures import bar_charts, charts
from brokerbed.analysis.report.page import page
from brokerbed.analysis.report.traffic import crossings, with_crossings
from tests.report.made import exact, made
from tests.report.wellformed import read as read_markup


def test_crossings_of_straight_lines() -> None:
    """a falls from 10 to 0, b is 4 throughout, c rises from 1: c, then b from 3 on, then a from 6 on."""
    a, b = Curve("a", [(0, 10), (10, 0)]), Curve("b", [(0, 4), (10, 4)])
    c = Curve("c", [(0, 1), (10, 11)])
    assert crossings([a, b, c]) == [(3, 4, "b"), (6, 4, "a")]
    assert crossings([a, c]) == [(4.5, 5.5, "a")]
    assert crossings([b]) == crossings([]) == []
    assert crossings([Curve("low", [(0, 0), (5, 1)]), Curve("high", [(0, 2), (5, 2)])]) == []


def test_crossings_are_marked_and_said() -> None:
    chart = Chart("total", "x", "1/s", [Curve("a", [(0, 10), (10, 0)]), Curve("b", [(0, 4), (5, 4), (10, 4)])])
    marked = with_crossings(chart)
    assert [mark[:2] for mark in marked.marks] == [(6, 4)]
    assert marked.note == "Predicted: b is cheapest first, a from 6 on."


def test_bars_are_as_high_as_their_parts() -> None:
    chart = BarChart("t", "x", "1/s", ("one", "two"), [("", [Bar("a", (30.0, 70.0)), Bar("b", (50.0, 0.0))])])
    text = str(draw(chart))
    read_markup(text)
    heights = [float(part.split('height="')[1].split('"')[0]) for part in text.split("<rect")[1:4]]
    assert heights[1] / heights[0] == pytest.approx(70 / 30, rel=0.01)
    assert heights[2] / heights[0] == pytest.approx(50 / 30, rel=0.01)


def test_report_compares_algorithms(tmp_path: Path) -> None:
    """All eight side by side; over a quantity, bars for each of its values, and the crossing that predict finds."""
    text = shipped.find("algorithms/all").read_text()
    report = read(made(tmp_path / "all", text, exact))
    (bars,) = bar_charts(report.points)
    ((name, group),) = bars.groups
    assert (name, [bar.name for bar in group]) == ("", [point.scenario.routing for point in report.points])
    for bar, point in zip(group, report.points, strict=True):
        total = next(row for row in point.headline if row.metric == "rate.total")
        assert sum(bar.parts) == pytest.approx(total.predicted)
    assert "Traffic over links by routing algorithm" in page(report)
    report = read(made(tmp_path / "sources", shipped.find("algorithms/advertising_pays").read_text(), exact))
    (bars,) = bar_charts(report.points)
    assert [(name, len(group)) for name, group in bars.groups] == [
        ("10", 4),
        ("30", 4),
        ("100", 4),
        ("300", 4),
        ("1,000", 4),
    ]
    all_messages = next(chart for chart in charts(report.points, "x") if chart.title == "All messages")
    assert [mark[2].split(" from")[0] for mark in all_messages.marks] == [
        "predicted: peer-advertisement is cheapest",
        "measured: peer-advertisement is cheapest",
    ]
    assert 30 < all_messages.marks[0][0] < 100


def test_routing_with_parameters_in_a_sweep(tmp_path: Path) -> None:
    text = shipped.find("algorithms/covering_pays").read_text()
    text = text.replace("[identity, covering, merging]", "[identity, {algorithm: merging, threshold: 5}]")
    report = read(made(tmp_path / "merging", text, exact))
    total = next(chart for chart in charts(report.points, "x") if chart.title == "All messages")
    assert [curve.name for curve in total.curves] == ["identity", "merging (threshold 5)"]
    read_markup(page(report))


def test_break_even_of_the_radio_network_is_marked_three_times(tmp_path: Path) -> None:
    """By theory, by measurement (here of exactly the predicted values) and as published, by active subscribers."""
    report = read(made(tmp_path / "run", shipped.find("vliet2007/radio_measured").read_text(), exact))
    chart = charts(report.points, "vliet2007-radio_measured")[0]
    assert chart.title == "Van Vliet 2007, Fig. 3.3. All messages"
    assert chart.x_title == "active subscribers, on average"
    predicted, measured = (mark for mark in chart.marks if "published" not in mark[2])
    assert predicted[0] == pytest.approx(44.8, abs=0.1)
    assert measured[0] == pytest.approx(44.8, abs=0.1)
    assert "Predicted: identity is cheapest first, flooding from 44.8" in chart.note
    assert "Measured: identity is cheapest first, flooding from 44.8" in chart.note
    assert chart.note.endswith("Published: from 110 on.")


def test_break_evens_are_of_curves_that_differ_only_in_the_routing(tmp_path: Path) -> None:
    text = """
scenario: 1
name: two-rates
clock: {measure: 10s}
topology: {tree: star, brokers: 5}
refresh: 1s
subscriptions: {mean_active: 1, lifetime: {mean: 1s}, where: leaves}
publications: {rate: 1/s, where: [b0]}
sweep:
  routing: [identity, flooding]
  publications.rate: [2/s, 4/s]
  subscriptions.mean_active: [0.1, 1, 2, 4, 8, 16]
"""
    report = read(made(tmp_path / "run", text, exact))
    chart = next(chart for chart in charts(report.points, "two-rates") if chart.title == "All messages")
    places = {mark[2].partition(" is cheapest")[0]: mark[0] for mark in chart.marks}
    assert list(places) == [
        f"ω = {rate}/s, {kind}: flooding" for rate in (2, 4) for kind in ("predicted", "measured")
    ]  # fmt: skip
    assert chart.note.startswith("ω = 2/s, predicted: identity is cheapest first")
    assert places["ω = 2/s, predicted: flooding"] < places["ω = 4/s, predicted: flooding"]
    assert places["ω = 2/s, predicted: flooding"] == places["ω = 2/s, measured: flooding"]
