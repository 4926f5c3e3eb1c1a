"""All routing algorithms from the scenario to the verdict: the short version of `make algorithms-campaign`."""

from pathlib import Path

from tests.analysis.algorithms import text
from tests.analysis.commands import Commands

FAULTS = "faults: [{at: 25s, cut: [b0, b1], for: 2s}, {at: 35s, crash: b4, for: 2s}]\n"


def test_all_algorithms_agree_and_keep_the_invariants(command: Commands, tmp_path: Path) -> None:
    """On a tree of 20 brokers with a cut and a crash; whatever is measured well enough agrees with the prediction."""
    (tmp_path / "all.yaml").write_text(text("uneven", 40, tolerance="20%") + FAULTS)
    said = command(
        "run", tmp_path / "all.yaml", "--on", "virtual", "--json", "--out", tmp_path / "runs", "--allow-inconclusive"
    )
    assert len(said.json["points"]) == 8
    for point in said.json["points"]:
        broken = [it for it in point["invariants"] if not it["holds"]]
        assert broken == [], point["at"]
        checked = {it["name"]: it["checked"] for it in point["invariants"]}
        assert checked["tables_right_at_end"] > 0 or point["at"]["routing"] == "flooding"
        verdicts = {row["metric"]: row["verdict"] for row in point["metrics"]}
        assert "differs" not in verdicts.values(), (point["at"], verdicts)
        assert list(verdicts.values()).count("agrees") >= 3, (point["at"], verdicts)
    assert said.code == 0
