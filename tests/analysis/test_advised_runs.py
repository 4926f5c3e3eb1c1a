"""`brokerbed advise --confirm`: pairs of runs with the same workload."""

import json
from pathlib import Path

from tests.analysis.commands import Commands
from tests.unit.analysis.test_confirm import SMALL


def test_order_holds_on_both_sides_of_a_crossing(command: Commands, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    over = "publications.rate=1/s..4/s"
    done = command("advise", file, "--over", over, "--confirm", "--runs", tmp_path / "runs", "--json")
    assert done.code == 0, done.errors
    (crossing,) = done.json["over"]["crossings"]
    confirmed = done.json["confirmed"]
    assert confirmed["holds"] is True
    left, right = confirmed["sides"]
    assert left["at"] < crossing["at"] < right["at"]
    assert (left["cheaper"], left["than"]) == (crossing["from"], crossing["to"])
    assert (right["cheaper"], right["than"]) == (crossing["to"], crossing["from"])
    for side in (left, right):
        assert side["ci_low"] <= side["difference"] <= side["ci_high"]
    logs = Path(confirmed["run_directories"][0]) / "points"
    runs = [json.loads((logs / str(point) / "run.json").read_text(encoding="utf-8"))["scenario"] for point in range(20)]
    assert [run["seed"] for run in runs[:4]] == [1, 1, 2, 2]
    assert {run["routing"] for run in runs} == {crossing["from"], crossing["to"]}
