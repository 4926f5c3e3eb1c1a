"""What the report says of recorded connectivity: the trace, its correlation, and what the order of its periods is worth."""

import re
from itertools import pairwise
from pathlib import Path
from statistics import correlation, mean

import pytest

from brokerbed.analysis.report import traces
from brokerbed.analysis.report.data import read
from tests.report.made import COMMUTE, TRACED, exact, made

SIMULATED_S = {  # message by message, by a program that shares nothing with the models: 20 000 to 100 000 passes
    "in recorded order": 35.83,
    "ON and OFF periods in random order, each by themselves": 46.84,
}
EXPONENTIAL_S = 40.0  # equation 5 of Bouloukakis et al. 2017 with the means of the trace: 61.6 s and 37.1 s


def drawn(folder: Path) -> str:
    files = {COMMUTE.name: COMMUTE.read_text(encoding="utf-8")}
    (point,) = read(made(folder / "r", TRACED, exact, files=files)).points
    return traces.draw(point)


def test_trace_its_laws_and_its_correlations(tmp_path: Path) -> None:
    rows = [tuple(map(float, line.split(","))) for line in COMMUTE.read_text(encoding="utf-8").splitlines()[1:]]
    on_s, off_s = zip(*rows, strict=True)
    page = drawn(tmp_path)
    assert "commute.csv, one pass: 100 cycles in 9,870 s" in page
    assert f"ON periods: mean {mean(on_s):.4g} s" in page
    assert f"OFF periods: mean {mean(off_s):.4g} s" in page
    assert f"Correlation: {correlation(on_s, off_s):+.2f}" in page
    before = list(pairwise((on_s[-1], *on_s)))
    next_to = correlation(*zip(*before, strict=True))
    assert f"Of an ON period with the one before: {next_to:+.2f}".replace("-", "\u2212") in page


def test_what_the_order_is_worth(tmp_path: Path) -> None:
    rows = re.findall(r'<td[^>]*>([^<]*)<wbr/></td><td[^>]*data-value="([^"]*)"', drawn(tmp_path))
    delays_s = {name: float(value) for name, value in rows}
    assert len(delays_s) == 4
    for name, delay_s in SIMULATED_S.items():
        assert delays_s[name] == pytest.approx(delay_s, rel=0.005)
    assert delays_s["exponential periods with the same means"] == pytest.approx(EXPONENTIAL_S, abs=0.05)
    as_recorded, cycles_s, apart_s, _ = delays_s.values()
    assert as_recorded < cycles_s < apart_s


def test_a_peer_without_a_trace_has_no_such_part(tmp_path: Path) -> None:
    text = TRACED.replace("connectivity: {trace: commute.csv, order: recorded}", "on: {mean: 60s}, off: {mean: 40s}")
    (point,) = read(made(tmp_path / "r", text, exact)).points
    assert traces.draw(point) == ""
