"""The contract of a routing algorithm: which routing entries a broker announces over which of its links.

An algorithm is one file with a class, its Strategy, and a record that describes it, its Algorithm. The strategy of a
broker is told of every entry that appears or disappears at the broker's clients or neighbours, and returns the
announcements to make: an entry, the link over which it is announced, and whether it is added or withdrawn. The broker
does everything else: it sends announcements upward as SUBSCRIBE and UNSUBSCRIBE and downward as messages under
`$overlay/`, repeats what a neighbour may have missed, refreshes, and stores what has to survive a restart.

Two kinds of entries disappear without a message, because both ends of the link know that they do. The record says so,
and the broker does it, so a strategy never announces it:

- If the algorithm `covers`, an announced filter takes the place of the filters that it strictly covers.
- If the algorithm `advertises`, a withdrawn advertisement takes with it the entries that were announced in the opposite
  direction and overlap no other advertisement from there, and the answer to it.
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

    def left(self, link: Neighbour) -> Iterable[Announcement]:
        """The link has been removed for good. Every entry announced over it has already been withdrawn."""

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        """An entry appeared or disappeared: at the other end of the link `source`, or at a client if `source` is None.

        Announcements are sent in the order in which they are returned. An announcement for a link that is down is not
        sent; when the link is up again, `wanted` says which entries the neighbour should have. Only the strategies of
        algorithms that advertise hear of advertisements and of answers to them.
        """

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        """All entries that the neighbour should have, in a fixed order."""


class AdvertisingStrategy(Strategy, Protocol):
    """The strategy of an algorithm that advertises."""

    def is_answered(self, topics: str) -> bool:
        """Whether every link over which the advertisement of a client here was announced has answered it.

        Until then the broker spreads what is published under it as if it had not been advertised.
        """


class UpwardStrategy(ABC):
    """The base of strategies that announce to the parent only. A subclass defines `heard` and `_wanted_by_parent`."""

    def __init__(self) -> None:
        self._parent: Neighbour | None = None

    def joined(self, link: Neighbour) -> None:
        if link.is_parent:
            self._parent = link

    def left(self, link: Neighbour) -> Iterable[Announcement]:
        if link is self._parent:
            self._parent = None
        return ()

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
    """A parameter of an algorithm cannot be used; the text is a sentence."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class Parameter:
    """A whole number that users can set for an algorithm."""

    name: str
    default: int
    minimum: int
    summary: str  # one line of documentation


class Advertising(Enum):
    """Where advertisements are announced, and where interest is announced only if it overlaps one from there."""

    NONE = "none"
    UPWARD = "upward"  # advertisements to the parent; interest to the parent always, and to children as advertised
    EVERYWHERE = "everywhere"  # advertisements over all links; interest over all links, as advertised


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Everything that other parts of brokerbed may ask about an algorithm. None of them tests for its name.

    `stores_entries` and `climbs` together determine where notifications go: over every link (no entries are stored),
    always up and down only where the child wants them (the default), or only over links whose neighbour wants them
    (`climbs` is false). A notification never goes back over the link on which it arrived. Retained messages always
    climb to the root. A notification that was not advertised goes up always if advertisements are announced upward, and
    over every link if they are announced everywhere.
    """

    name: str  # used in scenario files and on the command line
    summary: str  # one line of documentation
    make: Callable[..., Strategy]  # called with the parameters, once per broker and again for every refresh
    stores_entries: bool = True  # brokers store what their neighbours want; otherwise notifications cross every link
    climbs: bool = True  # every notification goes to the root, whether or not a broker above wants it
    sends_each_subscription: bool = False  # equal filters of several subscribers are announced and stored separately
    speaks_downward: bool = False  # brokers announce to their children, too
    covers: bool = False  # an announced filter takes the place of those that it strictly covers
    merges: bool = False  # `prefix/+` may be announced in the place of filters, though nobody asked for it
    lets_links_move: bool = False  # a broker may get another parent while messages flow
    advertising: Advertising = Advertising.NONE
    parameters: tuple[Parameter, ...] = ()

    @property
    def advertises(self) -> bool:
        """Whether publishers should advertise what they publish."""
        return self.advertising is not Advertising.NONE

    @property
    def accepts_foreign_parent(self) -> bool:
        """Whether the parent may be another kind of broker.

        Such a parent announces nothing, and one UNSUBSCRIBE ends all subscriptions of a link to a filter.
        """
        return not (self.speaks_downward or self.sends_each_subscription)

    def checked(self, given: Mapping[str, Any]) -> dict[str, int]:
        """The value of every parameter: as given, or its default. Raises ParameterError for what cannot be used."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for key, value in given.items():
            if key not in known:
                there_are = f"it has {', '.join(known)}" if known else "it has none"
                raise ParameterError(key, f"{self.name} routing has no parameter {key}; {there_are}")
            minimum = known[key].minimum
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise ParameterError(key, f"{key} must be a whole number of at least {minimum}, not {value}")
        return {name: given.get(name, parameter.default) for name, parameter in known.items()}
