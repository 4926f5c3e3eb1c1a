"""`brokerbed advise`: what it prints, draws and refuses, in this process; runs are in tests/analysis/test_advised_runs.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from brokerbed.cli import dispatch
from tests.report.wellformed import Reader

PLACED = """
scenario: 1
name: placed
clock: {measure: 100s}
topology: {tree: star, brokers: 4}
routing: peer
classes: 4
subscriptions: {mean_active: 8, lifetime: {mean: 5s}}
publications: {rate: 4/s}
placement: {period: 10s}
"""
QUEUES = """
scenario: 1
name: queues
clock: {measure: 100s}
topology: {tree: line, brokers: 3}
service: {broker_in: {mean: 100ms}}
publishers: [{id: p, broker: b1, topic: t, rate: 2/s}, {id: q, broker: b1, topic: u, rate: 4/s}]
subscribers: [{id: s, broker: b2, topic: t}, {id: r, broker: b1, topic: u}]
"""


class Command:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._capture.readouterr()
        code = dispatch(["advise", *map(str, arguments)])
        return code, *self._capture.readouterr()

    def json(self, *arguments: object) -> dict[str, Any]:
        code, out, _ = self(*arguments, "--json")
        assert code == 0
        found = json.loads(out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def advise(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(request.param, encoding="utf-8")
    return path


def test_json_contract(advise: Command) -> None:
    found = advise.json("algorithms/all", "--over", "publications.rate=1/s..600/s")
    assert [*found] == ["scenario", "by", "algorithms", "refused", "best", "over"]
    assert (found["scenario"], found["by"], found["best"]) == ("algorithms-all", "rate.total", "covering")
    assert len(found["algorithms"]) == 8
    totals = [each["total"] for each in found["algorithms"]]
    assert totals == sorted(totals)
    for each in found["algorithms"]:
        assert [*each] == ["routing", "predicted", "total"]
        assert each["total"] == each["predicted"]["rate.total"]
        parts = each["predicted"]["rate.notifications"] + each["predicted"]["rate.control"]
        assert each["total"] == pytest.approx(parts)
    over = found["over"]
    assert (over["key"], over["from"], over["to"], over["unit"]) == ("publications.rate", 1, 600, "/s")
    assert [[*each] for each in over["crossings"]] == [["at", "from", "to"]] * 2
    assert advise.json("algorithms/all")["over"] is None


def test_table_says_by_how_much_and_where(advise: Command) -> None:
    code, out, errors = advise("algorithms/all", "--over", "publications.rate=1..600/s")
    assert code == 0
    assert "+14.23 (+2.78%)" in out  # identity: 526.0 instead of 511.8
    assert "flooding first" in out
    assert "from 14.49857/s on: merging" in out
    assert "the sweep of algorithms-all is left out" in errors


def test_page_is_well_formed_and_names_every_algorithm(advise: Command, tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    code, out, _ = advise("algorithms/all", "--over", "publications.rate=1/s..600/s", "--out", page)
    assert code == 0
    assert str(page) in out
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert reader.addresses == [each for each in reader.addresses if each.startswith(("#", "data:"))]
    text = " ".join(reader.text)
    for name in (
        "flooding",
        "simple",
        "identity",
        "covering",
        "merging",
        "peer",
        "advertisement",
        "merging from 14.49857/s on",
    ):
        assert name in text
    before = page.read_bytes()
    advise("algorithms/all", "--over", "publications.rate=1/s..600/s", "--out", page)
    assert page.read_bytes() == before


@pytest.mark.parametrize("file", [PLACED], indirect=True)
def test_refused_algorithms_are_listed_with_the_reason(advise: Command, file: Path) -> None:
    found = advise.json(file, "--by", "cost.routing")
    assert [each["routing"] for each in found["algorithms"]] == ["peer", "peer-advertisement"]
    assert [each["routing"] for each in found["refused"]] == [
        "flooding", "simple", "identity", "covering", "merging", "advertisement"
    ]  # fmt: skip
    assert all("placement needs routing under which links can move" in each["reason"] for each in found["refused"])
    assert "flooding is refused: placement needs" in advise(file)[1]


@pytest.mark.parametrize("file", [QUEUES], indirect=True)
def test_mean_delay_is_weighted_and_ends_where_a_queue_is_unstable(advise: Command, file: Path) -> None:
    """Peer: 6/s at b1 and 2/s at b2, which serve 10/s. p's messages take 1/(10 - 6) + 1/(10 - 2) s, q's 1/(10 - 6) s."""
    found = advise.json(file, "--by", "delay", "--over", "publishers.p.rate=1/s..20/s")
    totals = {each["routing"]: each["total"] for each in found["algorithms"]}
    assert totals["peer"] == pytest.approx((2 * (1 / 4 + 1 / 8) + 4 * 1 / 4) / 6)
    (last,) = found["over"]["crossings"]
    assert last["at"] == pytest.approx(6)  # then 10/s come to b1
    assert last["to"] is None


def test_whole_numbers_change_at_whole_numbers(advise: Command) -> None:
    over = advise.json("algorithms/all", "--over", "topology.width=1..16")["over"]
    assert over["crossings"] == [{"at": 2, "from": "peer", "to": "covering"}]


def test_parameter_of_an_algorithm_leaves_the_others_as_they_are(advise: Command) -> None:
    """With all ten classes of a group wanted, merging announces what covering does: from 11 on they are equal."""
    over = advise.json("algorithms/all", "--over", "routing.threshold=2..30", "--by", "table.remote_entries")["over"]
    assert over["best"] == "flooding"
    assert over["crossings"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--over", "subscriptions.mean_activ=1..2"],
            "subscriptions.mean_activ: unknown key; did you mean mean_active?",
        ),
        (["--over", "nowhere=1..2"], "nowhere: unknown key; did you mean"),
        (["--over", "publications.where=1..2"], "publications.where: must be all, leaves, or a list of brokers"),
        (["--over", "publications.rate=1..2"], "publications.rate: must be a rate like 3/s"),
        (["--over", "publishers.p4.rate=1/s..2/s"], "publishers.p4.rate: there are no publishers in this file"),
        (["--over", "publications.rate=2/s..2/s"], "publications.rate: the range from 2/s to 2/s is empty"),
        (["--over", "publications.rate=1h..2/s"], "publications.rate: 1h and 2/s are different kinds of quantities"),
        (["--over", "publications.rate=3/s..2/s"], "publications.rate: the range from 3/s to 2/s is reversed"),
        (["--over", "publications.rate=many..2/s"], "publications.rate: many..2/s is no range of numbers"),
        (["--over", "publications.rate"], "publications.rate is no KEY=A..B, as in subscriptions.mean_active=10..1000"),
        (["--over", "topology.width=1.5..4"], "topology.width: must be a whole number"),
        (["--over", "routing=1..4"], "routing: algorithms are what is compared"),
        (["--over", "routing.threshold=1..4"], "routing.threshold: must be whole numbers from 2 on"),
        (["--over", "name=1..4"], "name: this key cannot be swept"),
        (["--by", "delay"], "--by delay: algorithms-all has no such value; it needs publishers and subscribers"),
        (["--by", "cost.routing"], "--by cost.routing: algorithms-all has no such value; it needs `costs`"),
        (["--by", "beauty"], "--by: must be table.remote_entries"),
    ],
)
def test_errors_are_one_clear_sentence(advise: Command, arguments: list[str], said: str) -> None:
    code, out, errors = advise("algorithms/all", *arguments)
    assert (code, out) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1
