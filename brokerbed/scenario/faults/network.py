"""The network that faults strike, whatever ground it is on: what they can see of it and do to it.

It knows neither grounds nor clocks; hosts, links and peers are given as protocols.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # format.py builds its keys from the kinds of faults, which act on this network
    from brokerbed.scenario.peers import Peer


class Host(Protocol):
    """What runs one broker."""

    @property
    def name(self) -> str: ...
    @property
    def is_up(self) -> bool: ...
    @property
    def is_dead(self) -> bool:
        """Nothing of it is left that could run, and nothing is about to start."""

    @property
    def is_stopped(self) -> bool:
        """It is dead, or it exists and is suspended."""

    @property
    def serving(self) -> int:
        """0 while it answers nobody."""

    def crash(self) -> None: ...
    def start(self) -> None: ...
    def pause(self, is_paused: bool, /) -> None: ...


class Link(Protocol):
    """Between a broker and its parent. Its two ways are called `up` and `down`.

    Where links move, the parent may become another one, and `of_both` gives the link that stays between the two.
    """

    @property
    def child(self) -> Host: ...
    @property
    def parent(self) -> Host: ...
    @property
    def is_present(self) -> bool:
        """Whether the child has this parent now."""

    def of_both(self) -> "Link":
        """The link between these two brokers, whatever parent the child gets."""

    @property
    def is_connected(self) -> bool: ...
    def cut(self, *ways: str) -> None: ...
    def repair(self, *ways: str) -> None: ...
    def is_held(self, way: str, /) -> bool: ...


class Session(Protocol):
    """What a client knows of its connection."""

    @property
    def is_connected(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...


class ConnectedPeer(Protocol):
    """A peer that can be kept from being connected."""

    @property
    def peer(self) -> "Peer": ...
    @property
    def client(self) -> Session: ...
    def keep_off(self, is_kept_off: bool) -> None: ...


class Holds:
    """Counts the faults that hold each target (of one kind), so that the last fault to end releases the target."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}

    def has(self, *target: str) -> bool:
        return target in self._counts

    def take(self, *target: str) -> bool:
        """Whether this is the first fault that holds the target."""
        count_before = self._counts.get(target, 0)
        self._counts[target] = count_before + 1
        return count_before == 0

    def release(self, *target: str) -> bool:
        """Whether no fault holds the target any more."""
        self._counts[target] -= 1
        if self._counts[target] == 0:
            del self._counts[target]
        return target not in self._counts


class StruckNetwork:
    """What faults can see of a network and do to it.

    Faults may overlap: whatever several of them do to the same broker, link or peer is undone when the last of them
    heals. So every action here has a counterpart, which must be called exactly once.
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        links: Mapping[str, Link],
        peers: Sequence[ConnectedPeer],
        clients_at: Callable[[str], Iterable[Session]],
    ) -> None:
        """`links`: those that there are at the moment, by child."""
        self.hosts = list(hosts)
        self._links = links
        self.peers = peers
        self._clients_at = clients_at
        self._holds = Holds()

    @property
    def links(self) -> list[Link]:
        """The links as they are now."""
        return list(self._links.values())

    def crash(self, host: Host) -> None:
        if self._holds.take("crash", host.name):
            host.crash()

    def restart(self, host: Host) -> None:
        if self._holds.release("crash", host.name):
            self._start_if_free(host)

    def pause(self, host: Host) -> None:
        if self._holds.take("pause", host.name):
            host.pause(True)

    def resume(self, host: Host) -> None:
        if self._holds.release("pause", host.name):
            host.pause(False)
            self._start_if_free(host)

    def _start_if_free(self, host: Host) -> None:
        """A crashed broker is started when no crash and no pause holds it any more."""
        if not host.is_up and not self._holds.has("crash", host.name) and not self._holds.has("pause", host.name):
            host.start()

    def cut(self, link: Link, *ways: str) -> None:
        if first := [way for way in ways if self._holds.take("cut", link.child.name, link.parent.name, way)]:
            link.cut(*first)

    def repair(self, link: Link, *ways: str) -> None:
        if free := [way for way in ways if self._holds.release("cut", link.child.name, link.parent.name, way)]:
            link.repair(*free)

    def disconnect(self, peer: ConnectedPeer) -> None:
        if self._holds.take("disconnect", peer.peer.id):
            peer.keep_off(True)

    def reconnect(self, peer: ConnectedPeer) -> None:
        if self._holds.release("disconnect", peer.peer.id):
            peer.keep_off(False)

    def is_kept_off(self, peer: ConnectedPeer) -> bool:
        """Whether a fault keeps the peer from being connected."""
        return self._holds.has("disconnect", peer.peer.id)

    def links_of(self, host: Host) -> list[Link]:
        """The links to its parent and to its children."""
        return [link for link in self.links if host.name in (link.child.name, link.parent.name)]

    def neighbourhood(self, host: Host) -> frozenset[str]:
        """The names of the broker and of its neighbours."""
        links = self.links_of(host)
        return frozenset({host.name, *(link.child.name for link in links), *(link.parent.name for link in links)})

    def is_well(self, host: Host) -> bool:
        """Whether the broker serves, its links are up, and its clients are connected and subscribed."""
        return (
            bool(host.serving)
            and all(link.is_connected for link in self.links_of(host))
            and all(client.is_settled for client in self._clients_at(host.name))
        )
