"""What must hold while faults overlap: a small model, and a check of a run's log against it. Knows no ground.

The model: each fault holds its target from when its effect was seen until it is healed, whatever else happens. So a
broker that is crashed or paused logs nothing, a way that is cut brings no message to its other end, and a peer that is
disconnected receives nothing. Messages pass both ways through the tree while no fault that concerns them is under way,
from being struck to being seen to be over; and if a link is cut one way, they pass the other way for the time being
(acknowledgements cannot, so it does not go on for ever).
"""

from dataclasses import dataclass
from random import Random

from tests.conformance.runs import FAULT_EVENTS, Done

BROKERS = ("top", "left", "right", "low")
LINKS = (("left", "top"), ("right", "top"), ("low", "right"))
FLOWS = ("p", "s", "low"), ("q", "r", "left")  # publisher, subscriber, and its broker; each crosses the whole tree
PEERS = tuple(peer for publisher, subscriber, _ in FLOWS for peer in (publisher, subscriber))
CROSSING = """
publishers: [{id: p, broker: left, topic: t/x, rate: 10/s}, {id: q, broker: low, topic: u/x, rate: 10/s}]
subscribers: [{id: s, broker: low, topic: 't/#'}, {id: r, broker: left, topic: 'u/#'}]
"""
KINDS = ("crash", "pause", "cut", "cut one way", "disconnect")
SETTLED_S = 1.5  # after the last fault is over, until we expect messages to pass steadily
OPEN_S = 1.0  # for how long messages pass the other way of a link that is cut one way
EARLY_S = 0.1  # a fault is noted as healed so much after its target was released


@dataclass(frozen=True)
class Fault:
    number: int
    what: str
    struck_s: float
    seen_s: float
    healed_s: float
    over_s: float


def drawn(seed: int, count: int, first_s: float, gap_s: float, mean_s: float) -> str:
    """Pairs of faults of random kinds and targets, as the lines of a scenario: the second strikes during the first."""
    draw = Random(seed)
    lines = []
    for pair in range(count):
        at_s = first_s + pair * gap_s
        kinds = [draw.choice(KINDS), draw.choice(KINDS)]
        broker, link, peer = draw.choice(BROKERS), draw.choice(LINKS), draw.choice(PEERS)
        for kind in kinds:
            lasts_s = draw.uniform(0.5, 1.5) * mean_s
            lines.append(f"{{at: {at_s:.2f}s, {_target(kind, broker, link, peer, draw)}, for: {lasts_s:.2f}s}}")
            at_s += draw.uniform(0.1, 0.6) * lasts_s
    return f"faults: [{', '.join(lines)}]\n"


def _target(kind: str, broker: str, link: tuple[str, str], peer: str, draw: Random) -> str:
    """Faults of one pair strike one broker, link or peer, so that those of one kind meet."""
    if kind == "disconnect":
        return f"disconnect: {peer}"
    if kind in ("crash", "pause"):
        return f"{kind}: {broker}"
    child, parent = link
    way = f", way: {draw.choice((f'{child}>{parent}', f'{parent}>{child}'))}" if kind == "cut one way" else ""
    return f"cut: [{child}, {parent}]{way}"


def faults_in(done: Done) -> list[Fault]:
    """Every fault of the run; each was seen, healed, and seen to be over."""
    found: dict[int, dict[str, float]] = {}
    names: dict[int, str] = {}
    for row in done.clients:
        if row["event"] in FAULT_EVENTS:
            found.setdefault(row["sequence"], {})[row["event"]] = row["time_ns"] / 1e9
            names[row["sequence"]] = row["client"]
    for number, times in found.items():
        assert list(times) == list(FAULT_EVENTS), f"{names[number]} (number {number}) has only {times}"
    return [Fault(number, names[number], *times.values()) for number, times in sorted(found.items())]


def check(done: Done, late_s: float, is_other_way_open: bool = True) -> None:
    """`late_s`: what was under way in a process or in the network when a fault was seen may be logged so much later."""
    faults = faults_in(done)
    for fault in faults:
        until_s = fault.healed_s - EARLY_S
        passed = [time for time in _passing(done, fault.what) if fault.seen_s + late_s < time < until_s]
        passed = [time for time in passed if not _is_resumed(faults, fault, time)]
        assert not passed, f"{fault} held nothing at {passed[:3]}; the faults were {faults}"
        if is_other_way_open and ">" in fault.what and fault.healed_s - fault.seen_s > OPEN_S:
            _check_other_way(done, fault, faults)
    for publisher, subscriber, broker in FLOWS:
        received = [it["time_ns"] / 1e9 for it in done.events(broker, "sent", subscriber)]
        concerned = [
            it for it in faults if not it.what.startswith("disconnect") or it.what[-1] in publisher + subscriber
        ]
        for begin_s, end_s in _quiet(concerned, received[-1]):
            assert [it for it in received if begin_s < it < end_s], (
                f"nothing passed from {begin_s} to {end_s}: {faults}"
            )


def _is_resumed(faults: list[Fault], cut: Fault, time_s: float) -> bool:
    """A paused broker reads what had crossed a link before it was cut at the moment when the pause ends."""
    ends = cut.what.removeprefix("cut ").replace("-", ">").split(">")
    pauses = [it for it in faults if it.what in [f"pause {end}" for end in ends] and it.struck_s <= cut.seen_s]
    return cut.what.startswith("cut") and any(-EARLY_S < time_s - it.healed_s < EARLY_S for it in pauses)


def _check_other_way(done: Done, fault: Fault, faults: list[Fault]) -> None:
    sender, end = fault.what.removeprefix("cut ").split(">")
    from_s, until_s = fault.seen_s, fault.seen_s + OPEN_S
    if any(it is not fault and it.struck_s < until_s and it.over_s + SETTLED_S > from_s for it in faults):
        return  # which may be in the way
    passed = [it for it in _passing(done, f"cut {end}>{sender}") if from_s < it < until_s]
    assert passed, f"nothing passed against {fault}"


def _passing(done: Done, what: str) -> list[float]:
    """When something happened that the fault must not let happen."""
    verb, target = what.split(" ", 1)
    if verb in ("crash", "pause"):
        rows = done.rows[target]
    elif verb == "disconnect":
        rows = [it for it in done.clients if it["client"] == target and it["event"] in ("acknowledged", "received")]
    else:
        one, other = target.replace("-", ">").split(">")
        ends = [(one, other)] if ">" in target else [(one, other), (other, one)]
        rows = [row for sender, end in ends for row in done.events(end, "received", f"{end}>{sender}")]
    return [it["time_ns"] / 1e9 for it in rows]


def _quiet(faults: list[Fault], last_s: float) -> list[tuple[float, float]]:
    """Seconds during which no fault was under way."""
    found, free_s = [], 1.0
    for fault in sorted(faults, key=lambda it: it.struck_s):
        if fault.struck_s - free_s > 1:
            found.append((free_s, fault.struck_s))
        free_s = max(free_s, fault.over_s + SETTLED_S)
    return [*found, (free_s, last_s)] if last_s - free_s > 1 else found
