"""Brokers whose names begin as that of the clients' log does are brokers to the analysis all the same."""

from pathlib import Path

from tests.analysis.commands import PAIR, Commands

NAMED = PAIR.replace("{tree: star, brokers: 2}", "{tree: explicit, parents: {clients-eu: null, clientsb: clients-eu}}")
PEERS = """
publishers: [{id: p, broker: clientsb, topic: t, rate: 1/s}]
subscribers: [{id: s, broker: clients-eu, topic: t}]
"""


def test_brokers_called_almost_as_the_clients_are_measured(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "named.yaml").write_text(NAMED + PEERS)
    said = command("run", tmp_path / "named.yaml", "--on", "virtual", "--json", "--detail", "--out", tmp_path / "runs")
    assert said.json["invariants"]
    assert all(it["holds"] for it in said.json["invariants"])
    rates = {
        it["labels"]["link"]: it["measured"]
        for it in said.json["metrics"]
        if it["metric"] == "rate.notifications" and it["labels"].keys() == {"link"}
    }
    assert rates["clientsb>clients-eu"] > 1


def test_message_is_followed_through_brokers_called_almost_as_the_clients(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "named.yaml").write_text(NAMED + PEERS)
    made = command(
        "run", tmp_path / "named.yaml", "--on", "virtual", "--json", "--no-analyse", "--out", tmp_path / "runs"
    )
    assert made.code == 0, made.errors
    said = command("trace", tmp_path / "runs/latest", "p.1", "--json")
    assert [it["broker"] for it in said.json["steps"] if it["event"] == "received"] == [
        "clientsb",
        "clients-eu",
        "clients",
    ]
