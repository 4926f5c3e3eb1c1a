"""The contract of a routing algorithm: which routing entries a broker announces over which of its links.

An algorithm is one file with a class, its Strategy, and a record that describes it, its Algorithm. The strategy of a
broker is told of every entry that appears or disappears at the broker's clients or neighbours, and returns the
announcements to make: an entry, the link over which it is announced, and whether it is added or withdrawn. The broker
does everything else: it sends announcements upward as SUBSCRIBE and UNSUBSCRIBE and downward as messages under
`$overlay/`, repeats what a neighbour may have missed, refreshes, and stores what has to survive a restart.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from brokerbed.broker.values import Entry


class Neighbour(Protocol):
    """One link of the broker. This is all that an algorithm may know about a link."""

    @property
    def peer(self) -> str:
        """The name of the broker at the other end."""

    @property
    def is_parent(self) -> bool: ...


class Announcement(NamedTuple):
    """An entry to be announced to, or withdrawn from, the neighbour at the other end of a link."""

    link: Neighbour
    entry: Entry
    is_added: bool  # False: the entry is withdrawn


class Strategy(Protocol):
    """The routing state of one broker. It does no I/O, reads no clock, and iterates over no sets."""

    def joined(self, link: Neighbour) -> None:
        """The broker has a new link, over which nothing has been announced yet in either direction."""

    def left(self, link: Neighbour) -> None:
        """The link has been removed for good. Every entry announced over it has already been withdrawn."""

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        """An entry appeared or disappeared: at the other end of the link `source`, or at a client if `source` is None.

        Announcements are sent in the order in which they are returned. An announcement for a link that is down is not
        sent; when the link is up again, `wanted` says which entries the neighbour should have.
        """

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        """All entries that the neighbour should have, in a fixed order."""


class UpwardStrategy(ABC):
    """The base of strategies that announce to the parent only. A subclass defines `heard` and `_wanted_by_parent`."""

    def __init__(self) -> None:
        self._parent: Neighbour | None = None

    def joined(self, link: Neighbour) -> None:
        if link.is_parent:
            self._parent = link

    def left(self, link: Neighbour) -> None:
        if link is self._parent:
            self._parent = None

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        return self._wanted_by_parent() if link is self._parent else ()

    @abstractmethod
    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        """See Strategy."""

    @abstractmethod
    def _wanted_by_parent(self) -> Iterable[Entry]:
        """All entries that the parent should have, in a fixed order."""

    def _announce(self, entry: Entry, is_added: bool) -> tuple[Announcement, ...]:
        return () if self._parent is None else (Announcement(self._parent, entry, is_added),)


class ParameterError(ValueError):
    """A parameter that an algorithm does not have, or a value that is not allowed; the text is a sentence."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class Parameter:
    """A whole number that an algorithm takes."""

    name: str
    default: int
    minimum: int
    summary: str


class Advertising(Enum):
    NONE = "none"
    UPWARD = "upward"
    EVERYWHERE = "everywhere"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Everything that other parts of brokerbed may ask about an algorithm. None of them tests for its name.

    `stores_entries` and `climbs` together determine where notifications go: over every link (no entries are stored),
    always up and down only where the child wants them (the default), or only over links whose neighbour wants them
    (`climbs` is false). A notification never goes back over the link on which it arrived. Retained messages always
    climb to the root.
    """

    name: str  # used in scenario files and on the command line
    summary: str  # one line of documentation
    make: Callable[[], Strategy]  # called once per broker, and again for every refresh
    stores_entries: bool = True  # brokers store what their neighbours want; otherwise notifications cross every link
    climbs: bool = True  # every notification goes to the root, whether or not a broker above wants it
    sends_each_subscription: bool = False  # equal filters of several subscribers are announced and stored separately
    speaks_downward: bool = False
    covers: bool = False
    merges: bool = False
    advertising: Advertising = Advertising.NONE
    parameters: tuple[Parameter, ...] = ()

    @property
    def advertises(self) -> bool:
        return self.advertising is not Advertising.NONE

    def checked(self, given: Mapping[str, Any]) -> dict[str, int]:
        """All parameters with their values; raises ParameterError."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for key, value in given.items():
            if key not in known:
                has = f"its parameters are {', '.join(known)}" if known else "it has none"
                raise ParameterError(key, f"{self.name} routing has no such parameter; {has}")
            if type(value) is not int:
                raise ParameterError(key, f"must be a whole number, not {value}")
            if value < known[key].minimum:
                raise ParameterError(key, f"must be at least {known[key].minimum}, not {value}")
        return {name: given.get(name, parameter.default) for name, parameter in known.items()}
