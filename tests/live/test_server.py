"""The server behind the live page: who may ask, what is told, what strikes and heals."""

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.running import until
from tests.live.running import Watched, watched
from tests.local.commands import brokerbed, processes
from tests.progress import without_progress

SEEN_S_MAX = 60.0


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.needs("docker"))])
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
    assert ask(run, "/heal", {"number": told["number"]})[0] == 200
    until_told(run, lambda it: "heal_confirmed" in it["faults"][-1], "the end of the crash")
    assert look(run)["brokers"]["left"]["state"] == "serving"
    assert ask(run, "/heal", {"number": told["number"]})[0] == 409


def test_broker_that_was_crashed_twice_lives_again_when_both_crashes_are_healed(run: Watched) -> None:
    one, two = (ask(run, "/strike", {"verb": "crash", "target": "left"})[1]["number"] for _ in range(2))
    until_told(run, lambda it: it["brokers"]["left"]["state"] == "crashed", "the crash on the page")
    assert ask(run, "/heal", {"number": one})[0] == 200
    until_told(
        run, lambda it: any("healed" in fault for fault in it["faults"] if fault["number"] == one), "one healing"
    )
    assert look(run)["brokers"]["left"]["state"] == "crashed"
    assert ask(run, "/heal", {"number": two})[0] == 200
    until_told(run, lambda it: it["brokers"]["left"]["state"] == "serving", "the end of both")


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
        ({"verb": "cut", "target": ["left", "left"]}, "there is no link between left and left"),
        ({"verb": "crash", "target": "any"}, "there is no any to crash"),
        ({"verb": "disconnect", "target": "left"}, "there is no left to disconnect"),
        ({"verb": "crash", "target": "\ud800"}, "there is no \ud800 to crash"),
    ],
)
def test_mistake_is_one_sentence(run: Watched, body: object, said: str) -> None:
    assert ask(run, "/strike", body) == (409, {"error": said})


NO_JSON, NO_OBJECT = "the request's body must be JSON", "the request's body must be a JSON object"
NO_VERB = "verb must be one of crash, pause, cut, disconnect"
NO_NAME, NO_ENDS = "target must be the name of a broker or the id of a peer", "target must be a list of the two brokers"
NO_NUMBER = "number must be the whole number of a fault"
MALFORMED: list[tuple[str, bytes, str]] = [
    *((path, body, NO_JSON) for path in ("/strike", "/heal") for body in (b"", b"{", b"\xff\xfe", b"[" * 4000)),
    *((path, b"1" * 4096, NO_OBJECT) for path in ("/strike", "/heal")),
    *((path, body, NO_OBJECT) for path in ("/strike", "/heal") for body in (b"[]", b"null", b"true", b'"x"', b"NaN")),
    *(("/strike", b'{"target": "left"%s}' % it, NO_VERB)
      for it in (b"", *(b', "verb": ' + value for value in (b"null", b"1", b"true", b"[]", b"{}", b"NaN")))),
    *(("/strike", b'{"verb": "%s"%s}' % (verb, it), NO_NAME)
      for verb in (b"crash", b"pause", b"disconnect")
      for it in (b"", *(b', "target": ' + value for value in (b"null", b"1", b"true", b'["left"]', b"{}", b"NaN", b"[[]]")))),
    *(("/strike", b'{"verb": "cut"%s}' % it, NO_ENDS)
      for it in (b"", *(b', "target": ' + value for value in (
          b'"left"', b"null", b"7", b"true", b"{}", b"[]", b'["left"]', b'["left", "top", "top"]', b'["left", null]',
          b'["left", ["top"]]', b'[{}, "top"]', b'["left", NaN]', b'["left", true]')))),
    *(("/heal", b"{%s}" % it, NO_NUMBER)
      for it in (b"", *(b'"number": ' + value for value in (
          b"null", b"true", b"false", b'"1"', b"1.0", b"1e0", b"[1]", b"{}", b"NaN", b"Infinity", b"-Infinity")))),
]  # fmt: skip


def post(run: Watched, path: str, body: bytes, **headers: bytes) -> tuple[int, str]:
    """Raw bytes, as no client library would send them; the status and what was said."""
    base, _, token = run.address.partition("/?token=")
    given = {b"Host": b"localhost", b"X-Token": token.encode()}
    given |= {name.replace("_", "-").encode(): value for name, value in headers.items()}
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in given.items())
    head = b"POST %s HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n" % (path.encode(), len(body))
    host, _, port = base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 10) as wire:
        wire.sendall(head + lines + b"\r\n" + body)
        answer = b""
        while data := wire.recv(65536):
            answer += data
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2].decode()


def test_malformed_requests_are_answered_with_one_sentence(run: Watched) -> None:
    before = look(run)["faults"]
    answers = [(path, body, *post(run, path, body)) for path, body, _ in MALFORMED]
    wrong = [
        (path, body, status, said)
        for (path, body, status, said), (*_, expected) in zip(answers, MALFORMED, strict=True)
        if status != 400 or not json.loads(said)["error"].startswith(expected)
    ]
    assert wrong == []
    assert look(run)["faults"] == before  # nothing was struck or healed


@pytest.mark.parametrize("number", ["0", "-1", "999", "9" * 4000])
def test_fault_that_is_not_there_is_one_sentence(run: Watched, number: str) -> None:
    status, said = post(run, "/heal", b'{"number": %s}' % number.encode())
    assert status == 409
    assert re.fullmatch(r"fault [-0-9.]{1,50} is not there, or is healed already", json.loads(said)["error"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 409),
        ({"Host": b"127.0.0.1:8000", "Origin": b"http://127.0.0.1:8000"}, 409),
        ({"Host": b"[::1]:8000"}, 409),
        ({"Host": b"evil.example"}, 403),  # a name that leads here now
        ({"Host": b"evil.example:8000", "Origin": b"http://evil.example:8000"}, 403),
        ({"Host": b"127.0.0.1.evil.example"}, 403),
        ({"Host": b""}, 403),
        ({"Host": b"[::1"}, 403),
        ({"Origin": b"http://evil.example"}, 403),
        ({"Origin": b"http://localhost:3000"}, 403),  # another server on this machine
        ({"Origin": b"null"}, 403),
    ],
)
def test_other_pages_and_other_names_are_refused_even_with_the_token(
    run: Watched, headers: dict[str, bytes], status: int
) -> None:
    assert post(run, "/heal", b'{"number": 999}', **headers)[0] == status


@pytest.mark.parametrize("token", [b"\xff\xfe", b"", b"\xc3\xa4", b"x" * 4000])
@pytest.mark.parametrize("path", ["/", "/tree", "/events", "/strike", "/heal", "/nowhere"])
def test_token_of_any_bytes_is_refused(run: Watched, path: str, token: bytes) -> None:
    status, said = post(run, path, b"{}", X_Token=token)
    assert status in (403, 404, 405)
    assert said.count("\n") <= 1
    assert post(run, "/strike", b"{}", X_Token=token)[0] == 403


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/strike", b" " * 5000, {}, 413),
        ("/strike", b"{}", {"Content_Type": b"application/json; charset=nonsense"}, 400),
        ("/nowhere", b"{}", {}, 404),
        ("/tree", b"{}", {}, 405),
        ("/strike?token=%ff", b"{}", {"X_Token": b""}, 403),
    ],
)
def test_request_of_another_kind_is_the_clients_mistake(
    run: Watched, path: str, body: bytes, headers: dict[str, bytes], status: int
) -> None:
    assert post(run, path, body, **headers)[0] == status


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
    (line,) = without_progress(errors)
    assert (process.returncode, said in line) == (code, True), line
    assert processes(tmp_path) == []
