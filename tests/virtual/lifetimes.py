"""Random experiments in which messages expire and faults strike, on the virtual ground, judged from the raw logs.

Every message at QoS 1 or 2 must end at each of its subscribers in one of two ways: it is processed before its time is
over, or it dies somewhere on its way, and not before its time is over. Nothing else may become of it, whatever the
faults. At QoS 0 a fault may also lose it. The judgement shares no code with the analysis.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from brokerbed.log.record import CLIENTS, RECORD, Kind, Log, Reason
from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import Scenario, load

MEASURE_S = 60
Message = tuple[str, int]  # publisher and number


def scenario_text(seed: int) -> str:
    random = Random(f"lifetimes/{seed}")
    size = random.randint(1, 6)
    parents = {f"b{child}": f"b{random.randrange(child)}" if child else "null" for child in range(size)}

    def broker() -> str:
        return f"b{random.randrange(size)}"

    def law(*means_ms: int) -> str:
        return (
            f"{{mean: {random.choice(means_ms)}ms, law: {random.choice(('exponential', 'deterministic', 'uniform'))}}}"
        )

    def often(key: str, *means_ms: int) -> str:
        return f", {key}: {law(*means_ms)}" if random.random() < 0.6 else ""

    def comes_and_goes() -> str:
        return f", on: {law(2000, 9000)}, off: {law(1000, 7000)}" if random.random() < 0.5 else ""

    publishers = [
        f"  - {{id: p{n}, broker: {broker()}, topic: t/{n}, rate: {random.choice((1, 4))}/s, qos: {random.choice((0, 1, 1, 2))}"
        f"{often('expiry', 20, 300, 2000, 10_000)}{often('service', 50, 300)}{comes_and_goes()}}}"
        for n in range(random.randint(1, 3))
    ]
    subscribers = [
        f"  - {{id: s{n}, broker: {broker()}, topic: {random.choice(('t/0', 't/0', 't/+'))}, qos: 2"
        f"{often('session_service', 20, 200)}{often('service', 20, 200)}{comes_and_goes()}}}"
        for n in range(random.randint(1, 3))
    ]
    verbs = ["crash", "pause", "disconnect", *(["cut", "cut"] if size > 1 else [])]
    faults = [f"  - {{at: 5s, {verb}: any, for: {random.choice((1, 5, 20))}s}}".replace("5s,", f"{random.randint(1, 55)}s,", 1)
              for verb in random.choices(verbs, k=random.randint(0, 5))]  # fmt: skip
    service = "".join(f"{key}: {law(5, 60)}, " for key in ("broker_in", "link") if random.random() < 0.7)
    return "\n".join([
        "scenario: 1", "name: lifetimes", f"seed: {seed}", f"clock: {{measure: {MEASURE_S}s}}",
        "topology: {tree: explicit, parents: {" + ", ".join(f"{it}: {parent}" for it, parent in parents.items()) + "}}",
        f"routing: {random.choice(('flooding', 'identity', 'peer'))}", f"service: {{{service}}}" if service else "",
        "publishers:", *publishers, "subscribers:", *subscribers, *(["faults:", *faults] if faults else []), "",
    ])  # fmt: skip


class Drop(NamedTuple):
    time_ns: int
    reason: Reason
    broker: str  # or the clients
    subject: str


@dataclass
class Ends:
    """What the logs say of the messages."""

    published: dict[Message, int] = field(default_factory=dict)  # with the QoS
    published_ns: dict[Message, int] = field(default_factory=dict)
    dies_ns: dict[Message, int] = field(default_factory=dict)
    processed_ns: dict[tuple[Message, str], int] = field(default_factory=dict)  # by message and subscriber, at last
    dropped: dict[Message, list[Drop]] = field(default_factory=lambda: defaultdict(list))


class RawLogs:
    """Takes what brokers and clients log."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
        self._records: list[tuple[str, dict[int, str], bytes]] = []

    def write(self, name: str, life: int, log: Log) -> None:
        names, _, records = log.take()
        self._names[name, life].update(names)
        self._records.append((name, self._names[name, life], bytes(records)))

    def ends(self) -> Ends:
        ends, entered = Ends(), dict[Message, Message]()
        for of_clients in (True, False):
            for event in self._events():
                if (event["broker"] == CLIENTS) != of_clients:
                    continue
                message = event["origin"], event["sequence"]
                if of_clients:
                    _note(ends, message, event)
                elif event["kind"] == Kind.IDENTIFIED:
                    entered[message] = event["subject"], event["route"]
        for event in self._events():
            if event["broker"] != CLIENTS and event["kind"] == Kind.DROPPED:
                message = entered[event["origin"], event["sequence"]]
                ends.dropped[message].append(_drop(event))
        return ends

    def _events(self) -> Iterator[dict[str, Any]]:
        fields = "time_ns", "sequence", "origin", "subject", "topic", "route", "size", "count", "kind", "qos", "reason"
        for broker, names, records in self._records:
            for values in RECORD.iter_unpack(records):
                event = {"broker": broker, **dict(zip(fields, values, strict=False))}
                yield event | {key: names.get(event[key], "") for key in ("origin", "subject")}


def _note(ends: Ends, message: Message, event: dict[str, Any]) -> None:
    kind, time_ns = event["kind"], event["time_ns"]
    if kind == Kind.PUBLISHED:
        ends.published[message], ends.published_ns[message] = event["qos"], time_ns
    elif kind == Kind.EXPIRES:
        ends.dies_ns[message] = time_ns
    elif kind == Kind.PROCESSED:
        ends.processed_ns[message, event["subject"]] = time_ns
    elif kind == Kind.DROPPED:
        ends.dropped[message].append(_drop(event))


def _drop(event: dict[str, Any]) -> Drop:
    return Drop(event["time_ns"], Reason(event["reason"]), event["broker"], event["subject"])


def run(text: str) -> tuple[Scenario, Ends]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(text, encoding="utf-8")
        (scenario,) = load(file).points
    logs = RawLogs()
    Simulation(scenario, logs.write).run()
    return scenario, logs.ends()


def problems(seed: int) -> list[str]:
    scenario, ends = run(scenario_text(seed))
    return list(wrong(scenario, ends))


def wrong(scenario: Scenario, ends: Ends, rounded_ns: int = 0) -> Iterator[str]:
    """What should not have become of the messages. On real grounds times are `rounded_ns`, as wall time is coarser."""
    ways: dict[str, list[tuple[str, list[str]]]] = defaultdict(list)
    for publisher, receiver in scenario.pairs():
        path = [scenario.tree.names[place] for place in scenario.tree.path(publisher.broker, receiver.broker)]
        ways[publisher.id].append((receiver.id, path))
    for message, qos in ends.published.items():
        dies_ns, dropped = ends.dies_ns.get(message), ends.dropped[message]
        for drop in dropped:
            is_death = drop.reason in (Reason.EXPIRED, Reason.INPUT_EXPIRED)
            if is_death and (dies_ns is None or drop.time_ns < dies_ns - rounded_ns):
                yield f"{message}: {drop}, and its time is over at {dies_ns}"
            if qos and not is_death:
                yield f"{message}: {drop}"
        for subscriber, path in ways[message[0]]:
            processed_ns = ends.processed_ns.get((message, subscriber))
            if processed_ns is not None and dies_ns is not None and processed_ns >= dies_ns:
                yield f"{message} was processed by {subscriber} at {processed_ns}, and its time was over at {dies_ns}"
            may_be_lost = qos == 0 and bool(scenario.faults or _comes_and_goes(scenario, message[0], subscriber))
            is_explained = any(_is_on_way(drop, message[0], path, subscriber) for drop in dropped)
            if processed_ns is None and not is_explained and not may_be_lost:
                yield f"{message} at QoS {qos} did not reach {subscriber}, and nobody dropped it"


def _is_on_way(drop: Drop, publisher: str, path: list[str], subscriber: str) -> bool:
    links = [f"{here}>{there}" for here, there in pairwise(path)]
    at_input = drop.reason in (Reason.INPUT_EXPIRED, Reason.INPUT_FULL) and drop.broker in path
    return at_input or drop.subject in (*links, subscriber, publisher)


def _comes_and_goes(scenario: Scenario, *peers: str) -> bool:
    return any(peer.on is not None for peer in (*scenario.publishers, *scenario.subscribers) if peer.id in peers)
