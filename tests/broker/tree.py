"""A tree of broker processes on real sockets: started at once, killed and started again; and what its metrics say."""

import random
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

from prometheus_client.samples import Sample

from tests.broker.relay import Relay
from tests.broker.running import WAIT_S, Running, launch, listening, metric, metrics, until
from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial
from tests.overlay_examples import Counts, Crossing

PORTS = 20_000, 32_000  # below those that Linux and others take for port 0 and for outgoing connections
SENT, ENTRIES, QUEUED = "brokerbed_link_messages_total", "brokerbed_routing_entries", "brokerbed_session_queue_messages"
CONNECTED = "brokerbed_link_connected"
CHAIN = {"a": None, "b": "a", "c": "b"}


class Tree:
    """Brokers by name, which run inside a `with`. A port stays a broker's own while its process is gone."""

    def __init__(
        self,
        parents: Mapping[str, str | None],
        routing: str = "identity",
        relayed: Sequence[str] = (),
        root_parent: int | None = None,
    ) -> None:
        """`relayed` brokers reach their parents through a relay; the parent of the root is a foreign broker's port."""
        self.parents = dict(parents)
        self._reserved = {name: reserved() for name in parents}
        self.ports: dict[str, int] = {name: it.getsockname()[1] for name, it in self._reserved.items()}
        self._routing = routing
        self._above = {name: root_parent if above is None else self.ports[above] for name, above in parents.items()}
        self.relays: dict[str, Relay] = {}
        for name in relayed:
            self.relays[name] = Relay(self.ports[self.parents[name] or ""])
            self._above[name] = self.relays[name].port
        self._dials = {name: Dial(port) for name, port in self.ports.items()}
        self.running: dict[str, Running] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *names: str) -> None:
        """Starts these (or all) at once, and waits until they listen; their links may take a moment longer."""
        launched = {name: launch(*self._options(name)) for name in names or self.parents}
        try:
            self.running.update({name: listening(process) for name, process in launched.items()})
        except BaseException:
            end(*launched.values())
            raise

    def _options(self, name: str) -> list[str]:
        own = ["--name", name, "--port", str(self.ports[name]), "--routing", self._routing, "--metrics-port", "0"]
        above = self._above[name]
        return own if above is None else [*own, "--parent", f"127.0.0.1:{above}"]

    def kill(self, name: str) -> None:
        """kill -9: it loses all it knew. Returns when its neighbours know, which tell it nothing from then on."""
        process = self.running.pop(name).process
        process.kill()
        process.communicate(timeout=WAIT_S)
        for other in self.running:
            until(partial(self._has_lost, other, name), f"that {other} notices the end of {name}")

    def _has_lost(self, name: str, peer: str) -> bool:
        return metric(self.running[name], CONNECTED, peer=peer) == 0

    def stop(self) -> None:
        for dial in self._dials.values():
            dial.close()
        end(*(it.process for it in self.running.values()))
        for relay in self.relays.values():
            relay.stop()
        for it in self._reserved.values():
            it.close()

    def client(self, name: str, client_id: str | None = None, **options: Any) -> Client5:
        """A connected client of this broker."""
        return self._dials[name].v5(client_id, **options)

    # -- what the metrics say ---------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Messages that crossed the links and entries that point at children, as all brokers say now."""
        sent, entries = Counter[Crossing](), Counter[str]()
        for name, running in self.running.items():
            for sample in metrics(running):
                if _is_of_link(sample):
                    sent[Crossing(sample.labels["kind"], _link(sample))] = round(sample.value)
                elif sample.name == ENTRIES and sample.labels["scope"] == "remote":
                    entries[name] = round(sample.value)
        return Counts(+sent, +entries)

    def queued(self) -> Counter[str]:
        """Messages that wait for their sessions, by broker."""
        return +Counter({name: round(metric(it, QUEUED)) for name, it in self.running.items()})

    def until_linked(self, *children: str) -> None:
        """Waits until these (or all) have made their links, at least once since they were started."""
        for child in children or [child for child, parent in self.parents.items() if parent is not None]:
            until(partial(self._is_linked, child), f"the link of {child}")

    def _is_linked(self, child: str) -> bool:
        found = {_link(it) for it in metrics(self.running[child]) if _is_of_link(it)}
        return f"{child}>{self.parents[child]}" in found

    def until_entries(self, **entries: int) -> None:
        until(lambda: self.counts().entries == Counter(entries), f"these routing entries: {entries}")


def ancestors(parents: Mapping[str, str | None], name: str) -> list[str]:
    """From the parent to the root."""
    found = []
    above = parents[name]
    while above is not None:
        found.append(above)
        above = parents[above]
    return found


def end(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate(timeout=WAIT_S)


def reserved() -> socket.socket:
    """A port that nobody else gets while this is open, as a broker's port must stay its own while it is down.

    It is not among those that the system gives away by itself; that a broker can listen on it is allowed afterwards.
    """
    while True:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", random.randrange(*PORTS)))
        except OSError:
            holder.close()
        else:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return holder


def _is_of_link(sample: Sample) -> bool:
    return sample.name == SENT


def _link(sample: Sample) -> str:
    return f"{sample.labels['broker']}>{sample.labels['peer']}"
