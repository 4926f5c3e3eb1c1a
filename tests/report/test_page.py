"""report.html as a file: what is on it, that it is well formed, that what users wrote stays text."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.report import is_analysed, write
from brokerbed.analysis.report.data import read as read_run
from brokerbed.analysis.series import Sample
from brokerbed.cli import dispatch
from brokerbed.metrics import Row
from tests.report.made import FAULTED, SMALL_SWEEP, SWEEP, faulted_samples, made
from tests.report.wellformed import read


def written(folder: Path) -> str:
    return write(folder).read_text(encoding="utf-8")


def test_faulted_run(tmp_path: Path) -> None:
    html = written(made(tmp_path / "r", FAULTED, samples=faulted_samples(), offenders=("p.7 is lost",)))
    found = read(html)
    text = "".join(found.text)
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert "An invariant is broken" in text
    assert "Invariants broken: no_acknowledged_message_lost." in text
    assert "p.7 is lost" in text
    assert "cut b1-b3" in text
    assert "brokerbed run scenario.yaml --on virtual --seed 1" in text
    assert "b2: " in text
    assert "p: connected 100% of the time, 1 times" in text
    assert "s: connected 33% of the time, 2 times" in text  # 20 s and 13 s of 100 s
    assert {"brokers-0", "links-0", "queues-0", "invariants", "assumptions"} <= set(found.ids)
    assert all(it.startswith(("#", "data:")) for it in found.addresses)


def test_what_users_write_is_text(tmp_path: Path) -> None:
    html = written(made(tmp_path / "r", FAULTED, samples=[*faulted_samples(), Sample(0, "fault", "<b>&", 1.0, 2.0)]))
    assert "<b>&" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "<script>alert" not in html
    assert "a<b>&c/x at b3" in "".join(read(html).text)


def test_same_run_same_bytes(tmp_path: Path) -> None:
    folder = made(tmp_path / "r", FAULTED, samples=faulted_samples())
    assert written(folder) == written(folder)


def test_verdicts_at_the_top(tmp_path: Path) -> None:
    """One percent off with intervals of 3% agrees; twice the rate differs; no verdict hangs on detail rows."""

    def doubled(row: Row) -> float:
        return 2.0 if row.metric == "rate.control" and not row.labels else 1.01

    def detail_off(row: Row) -> float:
        return 1.01 if row.is_headline else 2.0

    assert read_run(made(tmp_path / "a", FAULTED)).verdict == "agrees"
    assert read_run(made(tmp_path / "b", FAULTED, doubled)).verdict == "differs"
    assert read_run(made(tmp_path / "c", FAULTED, detail_off)).verdict == "agrees"
    assert "Of 8 headline rows 7 agree, 1 differ." in written(tmp_path / "b")
    assert [
        html.split("<title>")[1].split("</title>")[0] for html in map(written, (tmp_path / "a", tmp_path / "b"))
    ] == [
        "faulted: agrees with theory",
        "faulted: differs from theory",
    ]


def test_rows_that_cannot_be_told_say_how_long_to_measure(tmp_path: Path) -> None:
    """As the analysis writes it; a comparison of an older version has no such column."""
    folder = made(tmp_path / "r", FAULTED)
    file = folder / "analysis" / "compared.parquet"
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        row["longer"] = None
    rows[0] |= {"verdict": "inconclusive", "longer": 3.44}
    pq.write_table(pa.Table.from_pylist(rows), file)
    text = "".join(read(written(folder)).text)
    assert "inconclusive, measure 3.4 × longer" in text
    assert "Measuring 3.4 × longer would give a verdict." in text
    for row in rows:
        del row["longer"]
    pq.write_table(pa.Table.from_pylist(rows), file)
    assert "longer would give a verdict" not in written(folder)


def test_laws_are_named(tmp_path: Path) -> None:
    law = "session_service: {mean: 10ms, law: deterministic}"
    text = FAULTED.replace("session_service: {mean: 10ms}", law)
    text = text.replace(
        "rate: 1/s, on: {mean: 5s}, off: {mean: 5s}", "rate: 1/s, on: {mean: 5s}, off: {mean: 6s, law: uniform}"
    )
    text = text.replace("lifetime: {mean: 5s}", "lifetime: {mean: 5s, law: lognormal, cv: 2.0}")
    text += "links: [{between: [b0, b1], delay: {mean: 20ms, law: deterministic}}]\n"
    shown = "".join(read(written(made(tmp_path / "r", text))).text)
    assert "b3, 1/s; ON mean 5 s, exponential; OFF mean 6 s, uniform; service mean 0.01 s, exponential" in shown
    assert "session service mean 0.01 s, deterministic" in shown
    assert "lifetime of subscriptionsmean 5 s, lognormal with cv 2" in shown
    assert "delay b0 – b1mean 0.02 s, deterministic" in shown


def test_delays_are_drawn_beside_what_theory_says(tmp_path: Path) -> None:
    """By formulas, lognormal service has a mean, but no known distribution of delays: no line, and the caption says so."""
    html = written(made(tmp_path / "r", FAULTED, samples=faulted_samples()))
    chart = html[html.index("End-to-end delays.") :]
    assert 'class="line s0"' in chart
    assert "No line" not in chart
    text = FAULTED.replace("session_service: {mean: 10ms}", "session_service: {mean: 10ms, law: lognormal, cv: 2.0}")
    text += "model: algorithm1\n"
    html = written(made(tmp_path / "n", text, samples=faulted_samples()))
    chart = html[html.index("End-to-end delays.") : html.index('id="detail"')]
    assert "No line for p -&gt; s: no model here knows how these delays are distributed." in chart
    assert 'class="line' not in chart


def test_small_sweep(tmp_path: Path) -> None:
    """Six points, two of them curves of three; flooding has no tables, and what it sends more is drawn, too."""
    found = read(written(made(tmp_path / "r", SMALL_SWEEP)))
    text = "".join(found.text)
    assert "Message rate saved over flooding" in text
    assert "Of 36 headline rows at 6 points" in text
    assert found.count["details"] == 6


def test_whole_figure_of_127_brokers_and_140_points(tmp_path: Path) -> None:
    html = written(made(tmp_path / "r", SWEEP))
    found = read(html)
    assert "Mühl et al. 2009, Fig. 3. Routing table sizes" in "".join(found.text)
    assert found.count["details"] == 7
    assert len(html.encode()) < 10_000_000


def test_no_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "r"
    assert dispatch(["report", str(folder)]) == 2
    assert capsys.readouterr().err == f"brokerbed: {folder}: there is no such run directory\n"
    folder.mkdir()
    assert dispatch(["report", str(folder)]) == 2
    assert capsys.readouterr().err == f"brokerbed: {folder}: this is not a run directory (it has no scenario.yaml)\n"


def test_damaged_analysis(tmp_path: Path) -> None:
    folder = made(tmp_path / "r", FAULTED)
    assert is_analysed(folder)
    (folder / "analysis" / "compared.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match="analyse again"):
        write(folder)
    assert not (folder / "report.html").exists()


def test_command_writes_and_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path / "r", FAULTED)
    assert dispatch(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").stat().st_size > 10_000


def test_engines_are_part_of_the_command_that_repeats_a_run(tmp_path: Path) -> None:
    folder = made(tmp_path / "r", FAULTED)
    told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    told |= {"ground": "docker", "testbed": {"engines": ["ssh://one", "tcp://two:2375"]}}
    (folder / "run.json").write_text(json.dumps(told), encoding="utf-8")
    assert "--on docker --seed 1 --engine ssh://one --engine tcp://two:2375" in "".join(read(written(folder)).text)


def test_doubts_are_told_once_for_all_points_with_their_number_and_a_remedy(tmp_path: Path) -> None:
    """Three kinds of assumptions do not hold at b5, at each of six points."""
    text = "".join(read(written(made(tmp_path / "r", SMALL_SWEEP))).text)
    where = "at b5 at routing = identity, subscriptions.mean_active = 10 and 5 more"
    assert f"Publications {where} do not arrive as a Poisson process, so predicted delays may not apply; repeat" in text
    assert (
        f"Fewer messages than the scenario asks for were generated {where}, so the measurement is of a lower load"
        in text
    )
    assert text.count("do not arrive as a Poisson process") == 2
