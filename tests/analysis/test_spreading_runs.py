"""JEDI's workload from the scenario to the verdict, with links that have a bandwidth."""

from pathlib import Path

from tests.analysis.commands import Commands

SPREADING = """
scenario: 1
name: spreading
clock: {warmup: 5s, measure: 600s}
topology: {tree: explicit, parents: {b0: null, b1: b0, b2: b0, b3: b1, b4: b1, b5: b3}}
spreading: {coefficient: 0.6, rate: 4/s, types: 8, redraw: 2s, qos: 1}
links: [{between: [b0, b1], bandwidth: 10Mbit/s}, {between: [b3, b5], bandwidth: 10Mbit/s}]
tolerance: 10%
sweep: {routing: [identity, peer, advertisement]}
"""


def test_rates_tables_and_bytes_agree(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SPREADING)
    said = command(
        "run", tmp_path / "s.yaml", "--on", "virtual", "--json", "--detail", "--out", tmp_path / "runs",
        "--allow-inconclusive",
    )  # fmt: skip
    assert said.code == 0, said.errors
    for point in said.json["points"]:
        assert [it for it in point["invariants"] if not it["holds"]] == []
        checked = {it["name"]: it["checked"] for it in point["invariants"]}
        assert checked["tables_right_at_end"] > 0
        assert checked["no_acknowledged_message_lost"] > 1000
        assert {it["name"] for it in point["assumptions"]} >= {
            "publications are Poisson",
            "load generators keep their rates",
        }
        assert "subscriptions arrive as a Poisson process" not in {it["name"] for it in point["assumptions"]}
        rows = {(row["metric"], *row["labels"].values()): row for row in point["metrics"]}
        agreed = {row["metric"] for row in point["metrics"] if not row["labels"] and row["verdict"] == "agrees"}
        assert agreed >= {"table.remote_entries", "table.local_entries", "rate.notifications", "rate.control"}
        received = [row for (metric, *_), row in rows.items() if metric == "rate.received"]
        used = [row for (metric, *_), row in rows.items() if metric == "link.utilisation"]
        assert (len(received), len(used)) == (6, 4)
        assert all(abs(row["relative_error"]) < 0.1 for row in (*received, *used))
