"""Crashes on the virtual ground also fall between storing what a broker has received and telling anybody."""

from pathlib import Path

from tests.conformance.runs import everything_arrived, play

SOON_NS = 1_000_000
TEXT = """
scenario: 1
name: window
clock: {warmup: 1s, measure: 200s}
topology: {tree: explicit, parents: {top: null, low: top}}
publishers: [{id: p, broker: top, topic: t/x, rate: 100/s}]
subscribers: [{id: s, broker: low, topic: 't/#'}]
faults: [{every: {mean: 1s}, crash: top, for: {mean: 100ms}}]
"""


def test_some_crashes_take_a_publication_that_was_received_but_not_acknowledged(tmp_path: Path) -> None:
    """The publisher sends it again; the log of the life that ended does not have it, as nobody was told of it."""
    done = play("virtual", tmp_path, TEXT, seed=1)
    everything_arrived(done)
    sent, acknowledged = (
        {it["sequence"]: it["time_ns"] for it in done.clients if (it["event"], it["client"]) == (event, "p")}
        for event in ("sent", "acknowledged")
    )
    struck, healed = ([it["time_ns"] for it in done.clients if it["event"] == event] for event in ("fault", "healed"))
    assert len(struck) > 100
    hit = [
        number
        for begin_ns, end_ns in zip(struck, healed, strict=True)
        for number in sent
        if begin_ns - SOON_NS < sent[number] < begin_ns < end_ns < acknowledged[number]
        and acknowledged.get(number - 1, end_ns) < begin_ns  # so the publisher was connected
    ]
    assert hit
    received = {it["time_ns"] for it in done.events("top", "received", "p")}
    assert sent[1] in received  # it takes no time to get there
    assert not received & {sent[number] for number in hit}
