"""The key `brokers` of peers that roam: what is read of it, every way to get it wrong, and what follows from it."""

import tomllib

import jsonschema
import pytest

from brokerbed.clients.crowd import Crowd
from brokerbed.clients.session import Client
from brokerbed.orchestrator.grounds.settings import broker_files
from brokerbed.orchestrator.simulator.simulation import MOVE_TIMEOUT_S, Simulation
from brokerbed.scenario import ScenarioError, schema
from tests.conftest import FromText

HEAD = "scenario: 1\nname: x\nclock: {measure: 100s}\ntopology: {tree: line, brokers: 4}\n"  # lines 1 to 4
ON_OFF = "on: {mean: 2s}, off: {mean: 1s}"
BROKERS = "subscribers.0.brokers"

MISTAKES = {
    "one word": (f"brokers: b1, {ON_OFF}", BROKERS, "must be a list of at least two brokers, like [b3, b7, b9], not b1"),
    "a number": (f"brokers: 3, {ON_OFF}", BROKERS, "must be a list of at least two brokers"),
    "one broker": (f"brokers: [b1], {ON_OFF}", BROKERS, "must be a list of at least two brokers"),
    "empty": (f"brokers: [], {ON_OFF}", BROKERS, "must be a list of at least two brokers"),
    "no names": (f"brokers: [b1, [b2]], {ON_OFF}", f"{BROKERS}.1", "must be a name of 1 to 64"),
    "unknown": (f"brokers: [b1, b9], {ON_OFF}", f"{BROKERS}.1", "there is no broker b9; brokers are b0, b1, b2, b3"),
    "twice": (f"brokers: [b1, b2, b1], {ON_OFF}", f"{BROKERS}.2", "broker b1 was given before"),
    "both": (f"broker: b0, brokers: [b1, b2], {ON_OFF}", BROKERS, "broker and brokers do not go together"),
    "neither": (ON_OFF, "subscribers.0.broker", "is required, as in broker: b3; or brokers, as in brokers: [b3"),
    "always on": ("brokers: [b1, b2]", BROKERS, "brokers needs on and off, or connectivity"),
    "misspelt": (f"broker: [b1, b2], {ON_OFF}", "subscribers.0.broker", "must be a name"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str, from_text: FromText) -> None:
    keys, key, message = MISTAKES[mistake]
    with pytest.raises(ScenarioError) as error:
        from_text(f"{HEAD}subscribers:\n  - {{id: s, topic: t, {keys}}}\n")
    (problem,) = error.value.problems
    assert (problem.line, problem.key) == (6, key)
    assert problem.message.startswith(message)


def test_other_peers_do_not_roam_and_links_do_not_move_meanwhile(from_text: FromText) -> None:
    with pytest.raises(ScenarioError, match="unknown key"):
        from_text(f"{HEAD}requesters: [{{id: q, brokers: [b1, b2], topic: t, rate: 1/s}}]\n")
    with pytest.raises(ScenarioError, match="brokers and placement do not go together"):
        from_text(
            f"{HEAD}routing: peer\nplacement: {{period: 60s}}\n"
            f"publishers: [{{id: p, brokers: [b1, b2], topic: t, rate: 1/s, {ON_OFF}}}]\n"
        )


def test_schema_wants_one_broker_or_several() -> None:
    document = schema()
    for kind, more in (("Subscriber", {}), ("Publisher", {"rate": "1/s"})):
        peer = {**document["$defs"][kind], "$defs": document["$defs"]}
        good = {"id": "p", "topic": "t", **more}
        life = {"on": {"mean": "1s"}, "off": {"mean": "1s"}}
        jsonschema.validate({**good, "broker": "b0"}, peer)
        jsonschema.validate({**good, "brokers": ["b0", "b1"], **life}, peer)
        jsonschema.validate({**good, "brokers": ["b0", "b1"], "connectivity": {"trace": "a.csv"}}, peer)
        for bad in (good, {**good, "broker": "b0", "brokers": ["b0", "b1"], **life}, {**good, "brokers": ["b0"], **life},
                    {**good, "brokers": ["b0", "b1"]}, {**good, "brokers": ["b0", "b0"], **life}):  # fmt: skip
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(bad, peer)


ROAMING = f"""{HEAD}
subscribers:
  - {{id: s, brokers: [b1, b2, b3], topic: t, {ON_OFF}, session_service: {{mean: 1ms}}}}
publishers: [{{id: p, broker: b0, topic: t, rate: 1/s}}]
copies: 3
"""


def test_every_broker_of_the_peer_serves_its_session(from_text: FromText) -> None:
    (scenario,) = from_text(ROAMING).points
    has_stage = {name: b"s.2" in broker_files(scenario, name, "x")["broker.toml"] for name in scenario.tree.names}
    assert has_stage == {"b0": False, "b1": True, "b2": True, "b3": True}


def test_peers_wait_for_their_sessions_however_long_faults_last(from_text: FromText) -> None:
    (scenario,) = from_text(ROAMING).points
    assert tomllib.loads(broker_files(scenario, "b1", "x")["broker.toml"].decode())["move_timeout_s"] == MOVE_TIMEOUT_S
    assert Simulation(scenario).hosts["b1"]._config(1).move_timeout_s == MOVE_TIMEOUT_S


def test_peer_comes_back_elsewhere_after_every_off_period_and_only_then(from_text: FromText) -> None:
    (scenario,) = from_text(ROAMING).points
    simulation = Simulation(scenario)
    crowd: Crowd = simulation.crowd
    peer = next(it for it in crowd.peers if it.peer.id == "s.1")
    places = [peer.client.broker]
    for is_on in (True, False, True, True, False):
        peer._switch((0, is_on))
        places.append(peer.client.broker)
    begin, same, off, back, still, off_again = places
    assert begin == same == off != back == still == off_again
    peer.keep_off(True)
    peer._switch((0, True))
    assert peer.client.broker != back
    assert isinstance(peer.client, Client)
    assert not peer.client._is_wanted
    peer.stop()  # it is ON, and stays where it is
    at_end = peer.client.broker
    peer._switch((0, False))
    peer.stop()
    assert peer.client.broker != at_end
    assert peer.client in simulation.clients_at(peer.client.broker)
    assert sum(peer.client in simulation.clients_at(name) for name in scenario.tree.names) == 1


def test_copies_begin_at_places_of_their_own(from_text: FromText) -> None:
    text = ROAMING.replace("copies: 3", "copies: 60")
    (scenario,) = from_text(text).points
    begun = [peer.client.broker for peer in Simulation(scenario).crowd.peers if peer.inbox is not None]
    assert {name: begun.count(name) for name in ("b1", "b2", "b3")} == pytest.approx(
        dict.fromkeys(("b1", "b2", "b3"), 20), abs=11
    )
