"""The way of one message: every hop, each step after what led to it."""

import re

import pytest

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.trace import Step, trace
from tests.analysis.real import Real

WAY = ["b3", "b1", "b0", "b2", "b6"]  # from p to s


def entries_of(real: Real) -> list[tuple[str, int, str, int]]:
    """Publisher and number of each message of a peer, and its identity at brokers."""
    its = [it for it in real.rows if it["event"] == "identified"]
    return [(it["client"], it["number"], it["origin"], it["sequence"]) for it in its]


def test_trace_of_one_message_hop_by_hop(real: Real) -> None:
    steps = trace(real.finished.folder, "p.0.7")
    received = [it.broker for it in steps if it.event == "received"]
    assert received == [*WAY, "clients"]
    own = [(it.broker, it.event, it.client) for it in steps if it.broker == "clients"]
    assert own == [
        ("clients", "published", "p.0"), ("clients", "sent", "p.0"), ("clients", "acknowledged", "p.0"),
        ("clients", "received", "s.0"), ("clients", "processed", "s.0"),
    ]  # fmt: skip
    at_b1 = [(it.event, it.client) for it in steps if it.broker == "b1"]
    assert at_b1 == [
        ("received", "b1>b3"), ("served", "b1>b3"), ("queued", "b1>b0"), ("sent", "b1>b0"), ("acknowledged", "b1>b0"),
    ]  # fmt: skip


def test_every_message_can_be_called_by_both_names(real: Real) -> None:
    for publisher, number, origin, sequence in entries_of(real)[::40]:
        steps = trace(real.finished.folder, f"{publisher}.{number}")
        assert steps == trace(real.finished.folder, f"{origin}.{sequence}")
        noted = [it for it in real.rows if it["event"] != "identified" and
                 (it["origin"], it["sequence"]) in ((publisher, number), (origin, sequence))]  # fmt: skip
        assert sorted((it.time_ns, it.broker, it.event) for it in steps) == sorted(
            (it["time_ns"], it["broker"], it["event"]) for it in noted
        )


def test_steps_are_in_causal_order(real: Real) -> None:
    """Also of one moment: links take no time here."""
    for publisher, number, *_ in entries_of(real)[::15]:
        steps = trace(real.finished.folder, f"{publisher}.{number}")
        assert [it.time_ns for it in steps] == sorted(it.time_ns for it in steps)
        assert_causal(steps)


def assert_causal(steps: list[Step]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for it in steps:
        here, is_peer = it.broker, it.broker == "clients"
        if it.event == "received":
            link = ">" in it.client
            there = it.client.split(">")[1] if link else "clients"
            if is_peer:  # from whichever broker serves it
                assert any(event == "sent" and client == it.client for _, event, client in seen), steps
            else:
                assert (there, "sent", f"{there}>{here}" if link else it.client) in seen, steps
        elif it.event == "acknowledged" and ">" in it.client:
            there = it.client.split(">")[1]
            assert (there, "received", f"{there}>{here}") in seen, steps
        elif it.event == "acknowledged":
            assert any(event == "received" and client == it.client and (broker == "clients") != is_peer
                       for broker, event, client in seen), steps  # fmt: skip
        elif it.event in ("served", "queued", "dropped") or (it.event == "sent" and not is_peer):
            assert any(broker == here and event == "received" for broker, event, _ in seen), steps
        seen.add((here, it.event, it.client))


def test_reasons_are_told(real: Real) -> None:
    """z.0 is off now and then, and what comes at QoS 0 meanwhile is dropped."""
    dropped = next(it for it in real.rows if it["event"] == "dropped" and it["client"] == "z.0")
    steps = trace(real.finished.folder, f"{dropped['origin']}.{dropped['sequence']}")
    assert [(it.event, it.reason) for it in steps if it.client == "z.0"] == [("dropped", "offline")]


@pytest.mark.parametrize("message", ["p.0", "p", "17", "", ".", "p.0.x", "p.0.-1"])
def test_what_is_no_name_of_a_message(real: Real, message: str) -> None:
    with pytest.raises(RunError, match=r"there is no such message|is called by its publisher and number"):
        trace(real.finished.folder, message)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("p.7", r"p has copies: did you mean p\.0\.7\?"),
        ("p.99999", r"p has copies, p\.0 to p\.1"),
        ("p.0.99999", r"p\.0 published 1 to \d+"),
        ("x.0.7", r"publishers are p\.0, p\.1, q\.0, q\.1$"),
    ],
)
def test_message_that_is_not_there_is_answered_with_those_that_are(real: Real, message: str, hint: str) -> None:
    with pytest.raises(RunError, match=f"^{re.escape(message)}: there is no such message in .*; {hint}"):
        trace(real.finished.folder, message)


def test_no_such_message_and_no_such_run(real: Real) -> None:
    with pytest.raises(RunError, match=r"^p\.0\.9999: there is no such message in "):
        trace(real.finished.folder, "p.0.9999")
    with pytest.raises(RunError, match="it has no log"):
        trace(real.finished.folder / "nowhere", "p.0.7")
