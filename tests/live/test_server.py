"""The server behind the live page: who may ask, what is told, what strikes and heals."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.running import until
from tests.live.running import Watched, watched
from tests.local.commands import brokerbed, processes

SEEN_S_MAX = 60.0


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("live"), request.param) as it:
        yield it


def ask(run: Watched, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
    base, _, given = run.address.partition("/?token=")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"X-Token": given if token is None else token})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else text


def look(run: Watched) -> dict[str, Any]:
    """What the stream tells next."""
    base, _, token = run.address.partition("/?token=")
    with urllib.request.urlopen(f"{base}/events?token={token}", timeout=10) as stream:
        line = next(it for it in stream if it.startswith(b"data: "))
    told: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return told


def until_told(run: Watched, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
    until(lambda: holds(look(run)), what, SEEN_S_MAX)


def test_page_is_on_loopback_only(run: Watched) -> None:
    assert run.address.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/tree", "/events"])
def test_nothing_is_told_without_the_token(run: Watched, path: str) -> None:
    status, said = ask(run, path, token="wrong")
    assert status == 403
    assert "token" in said


def test_nothing_is_struck_without_the_token(run: Watched) -> None:
    assert ask(run, "/strike", {"verb": "crash", "target": "left"}, token="")[0] == 403
    assert look(run)["faults"] == []


def test_tree_is_the_scenarios(run: Watched) -> None:
    _, tree = ask(run, "/tree")
    assert tree["parents"] == {"top": None, "left": "top", "right": "top", "low": "right"}
    assert tree["peers"] == ["p", "s"]
    top, left, right, low = (tree["places"][name][1] for name in ("top", "left", "right", "low"))
    assert top < left == right < low


def test_rates_and_tables_come_near_to_what_is_predicted(run: Watched) -> None:
    """Far from exact after so short a time, but of that size and not twice it."""

    def is_near(told: dict[str, Any]) -> bool:
        near = [it["measured"] and 0.5 < it["measured"] / it["predicted"] < 2 for it in told["compared"]]
        return len(near) == 5 and all(near)

    until_told(run, is_near, "averages of the right size")
    assert [it["metric"] for it in look(run)["compared"] if it["of"] == "p → s"] == ["delay.end_to_end"]
    assert sum(look(run)["links"]["left"]["rates"]) > 0
    assert {it["peer"] for it in look(run)["peers"]} == {"p", "s"}


def test_crash_and_repair(run: Watched) -> None:
    status, told = ask(run, "/strike", {"verb": "crash", "target": "left"})
    assert status == 200
    until_told(run, lambda it: it["brokers"]["left"]["state"] == "crashed", "the crash on the page")
    assert ask(run, "/strike", {"verb": "crash", "target": "left"}) == (
        409, {"error": "there is nothing to crash now at left"},
    )  # fmt: skip
    assert ask(run, "/heal", {"number": told["number"]})[0] == 200
    until_told(run, lambda it: "heal_confirmed" in it["faults"][-1], "the end of the crash")
    assert look(run)["brokers"]["left"]["state"] == "serving"
    assert ask(run, "/heal", {"number": told["number"]})[0] == 409


def test_cut_of_any_link(run: Watched) -> None:
    """Though no fault of the scenario names it."""
    status, told = ask(run, "/strike", {"verb": "cut", "target": ["low", "right"]})
    assert status == 200
    until_told(run, lambda it: it["links"]["low"]["cut"], "the cut on the page")
    until_told(run, lambda it: "fault_confirmed" in it["faults"][-1], "the cut being seen")
    ask(run, "/heal", {"number": told["number"]})
    until_told(run, lambda it: it["links"]["low"]["connected"] and not it["links"]["low"]["cut"], "the repair")


@pytest.mark.parametrize(("place", "peer"), [(0, "p"), (1, "s")])
def test_disconnection_of_a_peer(run: Watched, place: int, peer: str) -> None:
    status, told = ask(run, "/strike", {"verb": "disconnect", "target": peer})
    assert status == 200
    until_told(run, lambda it: it["peers"][place] == it["peers"][place] | {"peer": peer, "connected": 0}, "its end")
    until_told(run, lambda it: it["peers"][place]["queue"] > 50, "its queue filling")
    ask(run, "/heal", {"number": told["number"]})
    until_told(run, lambda it: it["peers"][place]["queue"] < 5, "its queue being empty")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"verb": "melt", "target": "left"}, "there is no fault melt; there are crash, pause, cut, disconnect"),
        ({"verb": "crash", "target": "nowhere"}, "there is no nowhere to crash"),
        ({"verb": "cut", "target": ["left", "low"]}, "there is no link between left and low"),
        ({"verb": "cut", "target": "left"}, "there is no link between left"),
        (["crash"], "there is no fault None; there are crash, pause, cut, disconnect"),
    ],
)
def test_mistake_is_one_sentence(run: Watched, body: object, said: str) -> None:
    assert ask(run, "/strike", body) == (409, {"error": said})


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--on", "virtual", "--live"], 2, "--live: the virtual ground runs faster than anybody can watch"),
        (["--live-at", "8000"], 2, "--live-at: 8000 is no HOST:PORT"),
        (["--on", "virtual", "--live-at", "127.0.0.1:0"], 2, "--live: the virtual ground runs faster"),
        (["--live", "--live-at", "192.0.2.1:8000"], 3, "the live page cannot be served on 192.0.2.1:8000"),
    ],
)
def test_wrong_address_is_one_sentence(tmp_path: Path, options: list[str], code: int, said: str) -> None:
    process = brokerbed(tmp_path, "run", "quickstart", "--no-analyse", "--out", tmp_path / "runs", *options)
    _, errors = process.communicate(timeout=SEEN_S_MAX)
    (line,) = [it for it in errors.splitlines() if "s left" not in it]
    assert (process.returncode, said in line) == (code, True), line
    assert processes(tmp_path) == []
