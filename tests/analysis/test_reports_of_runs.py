"""report.html at the end of an analysis, and by its own command, from runs on the virtual ground."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.analysis.commands import Commands, run_only
from tests.browser.opening import browser
from tests.report.wellformed import read

FAULTED = """
scenario: 1
name: faulted
clock: {warmup: 5s, measure: 55s}
topology: {tree: star, brokers: 3}
classes: 20
subscriptions: {mean_active: 10, lifetime: {mean: 5s}}
publications: {rate: 30/s}
publishers: [{id: p, broker: b1, topic: t, rate: 5/s}]
subscribers: [{id: s, broker: b2, topic: t, on: {mean: 4s}, off: {mean: 2s}}]
faults: [{at: 20s, cut: [b0, b2], for: 5s}]
"""

SWEEP = """
scenario: 1
name: swept
clock: {warmup: 5s, measure: 55s}
topology: {tree: levels, brokers: 7, width: 4}
classes: 20
subscriptions: {mean_active: 10, lifetime: {mean: 5s}}
publications: {rate: 20/s}
sweep: {routing: [identity, flooding], subscriptions.mean_active: [10, 50, 200]}
"""


def looked_at(file: Path, name: str, pictures: str) -> int:
    """Opened in a browser: how many such pictures there are. It complains of nothing and asks nobody."""
    with browser() as viewer:
        seen = viewer.open(file)
        seen.shoot(name)
        assert seen.stderr_warnings == []
        assert [it for it in seen.requests if not it.startswith("data:")] == [file.as_uri()]
        return seen.page.locator(pictures).count()


def test_report_of_a_run_that_was_not_analysed(tmp_path: Path, command: Commands) -> None:
    folder = run_only(tmp_path, FAULTED)
    said = command("report", folder)
    assert (said.code, said.out) == (0, f"{folder / 'report.html'}\n")
    text = "".join(read((folder / "report.html").read_text(encoding="utf-8")).text)
    assert "cut b2-b0, 20 s to 25 s" in text
    assert "p -> s: mean" in text
    series = pq.read_table(folder / "analysis" / "series.parquet").to_pylist()
    published = [it["y"] for it in series if it["kind"] == "rate.published"]
    assert len(published) == 128
    assert sum(published) / 128 == pytest.approx(35.0, rel=0.1)  # 30 of the classes and 5 of the peer
    shares = [it["y"] for it in series if it["kind"] == "delay"]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (1.0, 0.0)
    assert looked_at(folder / "report.html", "run-faulted", ".broad svg.time rect.struck") == 1


def test_report_of_a_sweep(tmp_path: Path, command: Commands) -> None:
    """Two routings are two curves with three measured points each, in every chart."""
    folder = run_only(tmp_path, SWEEP)
    command("analyse", folder)
    assert (
        looked_at(folder / "report.html", "run-swept", "#figures figure:first-of-type .broad svg.chart path.line") == 2
    )
    text = "".join(read((folder / "report.html").read_text(encoding="utf-8")).text)
    assert "Of 36 headline rows at 6 points" in text


def test_analyse_writes_it_and_says_where(tmp_path: Path, command: Commands) -> None:
    """With two seeds: pictures of the first, verdicts of both."""
    folder = run_only(tmp_path, FAULTED, "--seeds", "2")
    said = command("analyse", folder)
    assert said.out.endswith(f"report: {folder / 'report.html'}\n")
    text = "".join(read((folder / "report.html").read_text(encoding="utf-8")).text)
    assert "brokerbed run scenario.yaml --on virtual --seed 1 --seeds 2" in text
