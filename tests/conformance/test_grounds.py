"""What a scenario says happens, on every ground: the same bodies, read from the log alone."""

from collections import Counter
from pathlib import Path
from statistics import quantiles

import pytest

from tests.conformance.runs import Done, Play, everything_arrived
from tests.conformance.runs import play as play_on

TREE = """
scenario: 1
name: conform
clock: {{warmup: 1s, measure: {measure}, speedup: {speedup}}}
topology: {{tree: explicit, parents: {{top: null, left: top, right: top, low: right}}}}
"""
BROKERS = ("top", "left", "right", "low")
PAIR = """
publishers: [{id: p, broker: left, topic: t/x, rate: 10/s}]
subscribers: [{id: s, broker: low, topic: 't/#'}]
"""
WRITER = ", {id: w, brokers: [left, low], topic: u, rate: 10/s, qos: 2, on: {mean: 2s}, off: {mean: 1s}}"
READER = ", {id: r, brokers: [low, top, left], topic: u, qos: 2, on: {mean: 2s}, off: {mean: 1s}}"


def tree(measure: str = "10s", speedup: int = 5) -> str:
    return TREE.format(measure=measure, speedup=speedup)


def published(done: Done, publisher: str = "p") -> list[tuple[str, int]]:
    return done.messages("published", publisher)


def sessions_followed(done: Done, moves_min: int) -> None:
    """What w published arrived at r in order and once, and each came to other brokers with the session it had."""
    assert len(published(done, "w")) > 50
    assert done.messages("processed", "r") == published(done, "w")
    for peer, places in (("w", ("left", "low")), ("r", ("low", "top", "left"))):
        here = [len(done.events(broker, "session_here", peer)) for broker in places]
        assert min(here) > 0
        assert sum(here) >= moves_min
        came, left = (
            sum(len(done.events(broker, event, peer)) for broker in BROKERS)
            for event in ("session_came", "session_left")
        )
        assert came == left >= sum(here)


def test_messages_cross_the_tree_in_order(play: Play) -> None:
    done = play(tree() + PAIR)
    everything_arrived(done)
    assert done.messages("processed", "s") == published(done)  # nothing twice, where nothing breaks
    assert sorted(done.rows) == ["clients", "left", "low", "right", "top"]
    for broker, way in (("left", "left>top"), ("top", "top>right"), ("right", "right>low"), ("low", "s")):
        assert len(done.events(broker, "sent", way)) == len(published(done)), broker
    times = {
        (it["client"], it["event"], it["sequence"]): it["time_ns"]
        for it in done.clients
        if it["event"] in ("published", "processed")
    }
    for number in range(1, len(published(done)) + 1):
        assert times["s", "processed", number] >= times["p", "published", number]


@pytest.mark.parametrize(
    "subscriptions",
    [
        "{mean_active: 12, lifetime: {mean: 4s}}",
        "{population: {size: 2, on: {mean: 1s}, off: {mean: 2s}}}",
        "{static: {count: 1, place: random, redraw: 2s}}",
        "{mean_active: 12, lifetime: {mean: 2s}, roam: 0.6}",
    ],
)
def test_one_workload_on_all_grounds(tmp_path: Path, subscriptions: str) -> None:
    """The seed decides what clients do; the ground does not."""
    text = tree("5s") + PAIR + f"classes: 3\nsubscriptions: {subscriptions}\n"
    text += "publications: {rate: 30/s}\n"
    runs = [play_on(ground, tmp_path / ground, text, seed=5) for ground in ("virtual", "local")]
    assert published(runs[0]) == published(runs[1])
    for broker in BROKERS:
        made = [
            Counter(it["topic"] for it in done.events(broker, "received") if it["client"] == f"{broker}/pub")
            for done in runs
        ]
        assert made[0] == made[1], broker
        subscribed = [
            Counter((it["client"], it["topic"]) for it in done.events(broker, "subscribed") if "/s" in it["client"])
            for done in runs
        ]
        assert subscribed[0] == subscribed[1], broker


def test_peers_come_and_go_and_some_of_them_roam(play: Play) -> None:
    """Both have a queue of their own; what is made while one of them is off arrives later, and nothing is lost."""
    text = tree("30s", 10) + PAIR.replace(
        "rate: 10/s}", "rate: 10/s, on: {mean: 2s}, off: {mean: 1s}}" + WRITER
    ).replace("'t/#'}", "'t/#', on: {mean: 2s}, off: {mean: 1s}}" + READER)
    done = play(text)
    everything_arrived(done)
    sessions_followed(done, moves_min=6)
    assert len(done.events("low", "disconnected", "s")) >= 4
    assert len(done.events("left", "connected", "p")) >= 4
    assert done.events("low", "queued", "s")


def test_names_of_users_never_meet_those_of_the_testbed(play: Play) -> None:
    """A publisher that is called as a class's publisher might be, one called class, brokers called as clients might be."""
    done = play(
        tree().replace("left", "clients-eu").replace("low", "clients-1")
        + "classes: 2\nsubscriptions: {mean_active: 6, lifetime: {mean: 4s}, qos: 1}\npublications: {rate: 20/s, qos: 1}\n"
        + "publishers: [{id: top-pub, broker: top, topic: t/x, rate: 10/s}, {id: class, broker: top, topic: t/y, rate: 10/s}]\n"
        + "subscribers: [{id: s, broker: clients-1, topic: 't/#'}, {id: top-sub0, broker: top, topic: 't/#'}]\n"
    )
    assert sorted(done.rows) == ["clients", "clients-1", "clients-eu", "right", "top"]
    made = [*published(done, "top-pub"), *published(done, "class")]
    assert len(made) > 100
    for subscriber in ("s", "top-sub0"):
        assert sorted(done.messages("processed", subscriber)) == sorted(made)
    for name in ("top-pub", "class", "top-sub0"):
        assert len(done.events("top", "connected", name)) == 1, name  # nobody took its session over


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_waits_in_a_publisher_that_is_off_is_sent_when_the_broker_has_accepted_it(play: Play, qos: int) -> None:
    """Also at QoS 0, where whatever is sent too early is lost; and nothing is processed twice, for nothing breaks."""
    text = tree("30s", 10) + PAIR.replace("10/s}", f"10/s, qos: {qos}, on: {{mean: 1s}}, off: {{mean: 1s}}}}")
    done = play(text)
    made = published(done)
    assert len(made) > 200
    assert len(done.events("left", "connected", "p")) >= 8
    assert done.messages("sent", "p") == made
    assert list(dict.fromkeys(done.messages("processed", "s"))) == made
    if qos != 1:  # at QoS 1 what was not acknowledged when the publisher went off is sent again
        assert done.messages("processed", "s") == made


def test_crashed_broker_lives_again_on_its_data_and_sessions_pass_through_it(play: Play) -> None:
    roaming = PAIR.replace("10/s}", "10/s}" + WRITER).replace("'t/#'}", "'t/#'}" + READER)
    done = play(tree("60s") + roaming + "faults: [{at: 6s, crash: right, for: 5s}]\n")
    everything_arrived(done)
    sessions_followed(done, moves_min=12)
    struck, seen, healed, over = done.fault_times_s("crash right")
    assert struck <= seen <= healed <= over
    assert healed - struck >= 4.9
    assert len(done.events("right", "started")) == 2
    assert len(done.events("top", "started")) == 1
    crossing = [it["time_ns"] / 1e9 for it in done.events("right", "received")]
    assert not [time for time in crossing if seen < time < healed]
    assert [time for time in crossing if time > over]


@pytest.mark.parametrize(("way", "name"), [("", "right-top"), (", way: top>right", "top>right")])
def test_cut_link_holds_everything(play: Play, way: str, name: str) -> None:
    done = play(tree("20s", 2) + PAIR + f"faults: [{{at: 6s, cut: [right, top]{way}, for: 5s}}]\n")
    everything_arrived(done)
    struck, seen, healed, over = done.fault_times_s(f"cut {name}")
    assert struck <= seen <= healed <= over
    assert healed - struck >= 4.9
    crossing = [it["time_ns"] / 1e9 for it in done.events("right", "received")]
    assert not [time for time in crossing if seen + 0.1 < time < healed]
    assert len([time for time in crossing if time >= healed]) > 50


def test_paused_broker_answers_nobody(play: Play) -> None:
    done = play(tree("20s") + PAIR + "faults: [{at: 6s, pause: top, for: 5s}]\n")
    everything_arrived(done)
    struck, seen, healed, over = done.fault_times_s("pause top")
    assert struck <= seen <= healed <= over
    assert not [it for it in done.rows["top"] if seen < it["time_ns"] / 1e9 < healed - 0.1]
    assert len(done.events("top", "started")) == 1


def test_disconnected_peer_comes_again(play: Play) -> None:
    done = play(tree("20s") + PAIR + "faults: [{at: 6s, disconnect: s, for: 5s}]\n")
    everything_arrived(done)
    struck, seen, healed, over = done.fault_times_s("disconnect s")
    assert struck <= seen <= healed <= over
    (gone,) = [it["time_ns"] / 1e9 for it in done.events("low", "disconnected", "s") if it["time_ns"] < 20e9]
    assert struck - 0.1 <= gone <= seen + 0.5
    assert len(done.events("low", "queued", "s")) > 10


def test_nemesis_strikes_again_and_again(play: Play) -> None:
    text = tree("30s", 3) + PAIR + "faults: [{every: {mean: 4s}, cut: any, for: {mean: 1s}}]\n"
    done = play(text)
    everything_arrived(done)
    noted = Counter(it["event"] for it in done.clients if it["event"].startswith(("fault", "heal")))
    assert noted["fault"] >= 3
    assert noted["healed"] == noted["fault"] == noted["heal_confirmed"]


def test_emulated_service_takes_its_time(play: Play) -> None:
    """Of one kind and fixed length at every place, so that every single message shows it."""
    text = tree("20s", 2) + PAIR.replace("rate: 10/s", "rate: 4/s, service: {mean: 60ms, law: deterministic}").replace(
        "'t/#'", "'t/#', session_service: {mean: 70ms, law: deterministic}, service: {mean: 80ms, law: deterministic}"
    )
    text += "service: {broker_in: {mean: 40ms, law: deterministic}, link: {mean: 50ms, law: deterministic}}\n"
    done = play(text)
    everything_arrived(done)
    early_s = 0.002 * 2  # the grain of real timers, in model time

    def times(rows: list[dict[str, object]], event: str, client: str | None = None) -> dict[object, float]:
        return {
            it["sequence"]: int(str(it["time_ns"])) / 1e9
            for it in rows
            if it["event"] == event and client in (None, it["client"])
        }

    made, sent = times(done.clients, "published", "p"), times(done.clients, "sent", "p")
    received, processed = times(done.clients, "received", "s"), times(done.clients, "processed", "s")
    assert all(sent[number] - made[number] >= 0.060 - early_s for number in made)
    assert all(processed[number] - received[number] >= 0.080 - early_s for number in made)
    low = done.rows["low"]
    came, served, left = times(low, "received"), times(low, "served"), times(low, "sent", "s")
    assert all(served[number] - came[number] >= 0.040 - early_s for number in came)
    assert all(left[number] - served[number] >= 0.070 - early_s for number in came)
    assert all(processed[number] - made[number] >= 0.470 - early_s for number in made)  # 3 links, 4 inputs, 3 peers'


def test_slow_link(play: Play) -> None:
    text = tree("10s", 2) + PAIR + "links: [{between: [top, right], delay: {mean: 300ms, law: deterministic}}]\n"
    done = play(text)
    everything_arrived(done)
    sent = {it["sequence"]: it["time_ns"] for it in done.events("top", "sent", "top>right")}
    came = {it["sequence"]: it["time_ns"] for it in done.events("right", "received")}
    assert all(came[number] - sent[number] >= 300e6 for number in sent)


def test_narrow_link_takes_the_same_time_on_all_grounds(tmp_path: Path) -> None:
    """The fastest crossing tells how many bytes a message has, as nothing is before it; the others wait in turn."""
    text = """
        scenario: 1
        name: narrow
        clock: {warmup: 1s, measure: 30s}
        topology: {tree: explicit, parents: {top: null, low: top}}
        payload: 1000
        publishers: [{id: p, broker: top, topic: t/x, rate: 5/s}]
        subscribers: [{id: s, broker: low, topic: 't/#'}]
        links: [{between: [top, low], bandwidth: 64kbit/s}]
    """
    fastest = []
    for ground in ("virtual", "local"):
        done = play_on(ground, tmp_path / ground, text, seed=3)
        sent = {it["sequence"]: it["time_ns"] / 1e9 for it in done.events("top", "sent", "top>low")}
        came = {it["sequence"]: it["time_ns"] / 1e9 for it in done.events("low", "received")}
        assert len(sent) > 100
        alone = min(came[number] - sent[number] for number in sent)
        free, late, waited = 0.0, [], 0
        for number in sorted(sent):  # one after the other, each as long as the fastest
            waited += free > sent[number]
            free = max(free, sent[number]) + alone
            late.append(came[number] - free)
        assert waited > len(sent) / 4
        quarter, *_ = quantiles(late, n=4)  # where the machine is busy, many are late, but never too early
        assert abs(quarter) < 0.02 * alone
        fastest.append(alone)
    assert 0.125 < fastest[0] < 0.140  # 1000 bytes of payload, and some
    assert fastest[1] == pytest.approx(fastest[0], rel=0.02)


def test_routing_and_refresh(play: Play) -> None:
    """Flooding tells nobody and reaches everybody; a refresh repeats the interest."""
    text = tree("10s", 2) + PAIR + "classes: 2\nsubscriptions: {mean_active: 8, lifetime: {mean: 3s}}\n"
    done = play(text + "routing: flooding\npublications: {rate: 10/s}\n")
    everything_arrived(done)
    assert not [it for rows in done.rows.values() for it in rows if it["event"].startswith("link_")]
    done = play(text + "routing: identity\nrefresh: 2s\n")
    assert len(done.events("low", "link_refresh")) >= 4


def test_fault_that_is_shorter_than_it_takes_to_strike_is_seen_all_the_same(play: Play) -> None:
    """It lasts from when its effect is there: on docker a link is cut by a container that first has to start."""
    done = play(tree() + PAIR + "faults: [{at: 3s, cut: [low, right], for: 10ms}]\n")
    struck, seen, healed, over = done.fault_times_s("cut low-right")
    assert struck <= seen < healed <= over
    assert round(healed - seen, 6) >= 0.01
    everything_arrived(done)
