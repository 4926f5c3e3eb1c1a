"""The subscriptions of all sessions, and which of them a topic matches.

Exact filters are kept in a dictionary, wildcard filters in a trie. The receivers of a topic are cached. A change of an
exact filter invalidates the cache for that topic, and a change of a wildcard filter invalidates it for all topics.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from brokerbed.broker.core.filter_trie import FilterTrie
from brokerbed.broker.values import CACHED_TOPIC_CHARS_MAX
from brokerbed.log.record import ADDITIONAL, Log
from brokerbed.topics import is_wildcard

if TYPE_CHECKING:
    from brokerbed.broker.core.session import Session

ROUTES_MAX = 100_000  # cached topics; beyond that the cache is cleared
RECEIVERS_MAX = 1_000_000  # cached receivers of all topics together, some 100 MB; beyond that the cache is cleared
SHARE = "$share/"
PERIOD_NS = 1_000_000  # messages to a shared group that come within this time are divided evenly among its members


class Subscription:
    """One session's subscription to one filter."""

    __slots__ = (
        "entry_count",
        "filter",
        "identifier",
        "identity",
        "no_local",
        "qos",
        "retain_as_published",
        "row_number",
        "session",
        "wants_retained",
    )

    def __init__(
        self,
        session: "Session",
        topic_filter: str,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        identifier: int,
    ) -> None:
        self.session = session
        self.filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier  # the subscription identifier of MQTT 5; 0: none
        self.wants_retained = True  # the subscriber gets retained messages when the subscription is new
        self.identity = ""  # the identity of its routing entry
        self.row_number = 0  # of the subscription's row in the store; 0: it has none
        self.entry_count = 1  # for a link: how many entries of the neighbour have this filter

    @property
    def is_shared(self) -> bool:
        return self.filter.startswith(SHARE)


class Target:
    """One receiver of a topic: all matching subscriptions of one session, merged into one."""

    __slots__ = ("identifiers", "no_local", "qos", "retain_as_published", "session", "without_no_local")

    def __init__(self, matching: list[Subscription]) -> None:
        """Overlapping subscriptions yield one copy with the highest QoS and every identifier (section 3.3.4)."""
        first = matching[0]
        self.session = first.session
        if len(matching) == 1:
            self.qos, self.retain_as_published, self.no_local = first.qos, first.retain_as_published, first.no_local
            self.identifiers: tuple[int, ...] = (first.identifier,) if first.identifier else ()
            self.without_no_local: Target | None = None
            return
        self.qos = max([subscription.qos for subscription in matching])
        self.retain_as_published = any(subscription.retain_as_published for subscription in matching)
        self.identifiers = tuple([subscription.identifier for subscription in matching if subscription.identifier])
        others = [subscription for subscription in matching if not subscription.no_local]
        self.no_local = len(others) < len(matching)
        # The target for messages that the session itself published:
        self.without_no_local = Target(others) if self.no_local and others else None

    def for_publisher(self, publisher: object) -> "Target | None":
        """This target, or if the session is the publisher, what No Local leaves of it."""
        return self.without_no_local if self.no_local and self.session is publisher else self


class SharedGroup:
    """The members of one $share group and filter, which get messages in turn."""

    __slots__ = ("_in_order", "_period_ns", "_runs", "_runs_before", "members", "turn")

    def __init__(self) -> None:
        self.members: dict[Session, Subscription] = {}
        self.turn = 0
        self._period_ns = 0  # when the present period began
        self._runs = self._runs_before = 0  # how many runs came in this period and in the one before
        self._in_order: list[Subscription] = []  # the members as a list; emptied by changes and rebuilt when needed

    def changed(self) -> None:
        """A member has joined or left."""
        self._in_order = []

    def part_size(self, count: int, now_ns: int) -> int:
        """How many messages of a run one member gets before it is the next one's turn.

        A run that comes alone is divided evenly. If several come within PERIOD_NS, larger parts are fair, too.
        """
        age_ns = now_ns - self._period_ns
        if age_ns >= PERIOD_NS:
            self._runs_before = self._runs if age_ns < 2 * PERIOD_NS else 0
            self._period_ns, self._runs = now_ns, 0
        self._runs += 1
        return max(1, count * max(1, self._runs_before) // len(self.members))

    def next_member(self) -> Subscription:
        """The next member in turn that is connected; if none is, the next in turn."""
        members = self._in_order
        if not members:
            moves = [(it, it.session.move) for it in self.members.values()]
            present = [it for it, move in moves if move is None or not move.ignores_groups]
            members = self._in_order = present or list(self.members.values())
        turn = self.turn if self.turn < len(members) else 0
        if members[turn].session.connection is None:
            in_turn = (*range(turn, len(members)), *range(turn))
            turn = next((index for index in in_turn if members[index].session.connection is not None), turn)
        self.turn = turn + 1
        return members[turn]


class Receivers:
    """The receivers of a notification at QoS 0. All topics with the same receivers share one object."""

    __slots__ = (
        "__weakref__", "groups", "has_others", "is_additional", "log_flags", "log_number", "no_local", "plain",
        "special",
    )  # fmt: skip

    def __init__(
        self,
        plain: tuple["Session", ...],
        no_local: tuple["Session", ...],
        is_additional: bool,
        special: tuple[Target, ...] = (),
        groups: tuple[SharedGroup, ...] = (),
    ) -> None:
        self.plain = plain  # sessions that get the notification as it arrived
        self.special = special  # receivers that need the message as an object, such as those with an identifier
        self.groups = groups
        self.has_others = bool(special or groups)
        self.no_local = no_local  # the plain receivers that do not get what they published themselves
        self.is_additional = is_additional  # the notification climbs, but no subscriber here or below wants it
        self.log_flags = ADDITIONAL * is_additional
        self.log_number = -1  # the log's number for the plain receivers, assigned when first needed

    def number_in(self, log: Log) -> int:
        if self.log_number < 0:
            self.log_number = log.route(tuple(session.log_number for session in self.plain))
        return self.log_number


class Route:
    """The receivers of one topic. Every topic in use has a Route, so it is as small as possible."""

    __slots__ = ("log_topic", "receivers", "targets")

    def __init__(self, receivers: Receivers) -> None:
        self.receivers = receivers
        self.targets: list[Target] | None = None  # see Subscriptions.targets
        self.log_topic = -1  # the log's number for the topic, assigned when first needed

    @property
    def is_empty(self) -> bool:
        return not (self.receivers.plain or self.receivers.has_others)

    @property
    def own_size(self) -> int:
        """How many receivers are held for this topic only."""
        receivers = self.receivers
        own = len(receivers.plain) + len(receivers.special) if receivers.has_others else 0
        return own + len(self.targets or ())


class _Subscribers:
    """The subscriptions to one filter, unless there is only one, which then stands for itself."""

    __slots__ = ("groups", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[Session, Subscription] = {}
        self.groups: dict[str, SharedGroup] = {}


class Subscriptions:
    def __init__(self, has_additional: bool = True) -> None:
        """`has_additional`: every notification climbs to the root, and routing entries say which ones are wanted."""
        self._has_additional = has_additional
        self._exact: dict[str, Subscription | _Subscribers] = {}
        self._wildcards: FilterTrie[Subscription | _Subscribers] = FilterTrie()
        self.routes: dict[str, Route] = {}  # cache by topic; route() computes those that are missing
        self._receivers_held = 0  # receivers in `routes`, without those that topics share
        self._receivers: WeakValueDictionary[Any, Receivers] = WeakValueDictionary()  # those that topics share

    def add(self, subscription: Subscription) -> None:
        group, topic_filter = split_share(subscription.filter)
        found = self._find(topic_filter)
        is_alone = found is None or (type(found) is Subscription and found.session is subscription.session)
        if is_alone and not group:
            self._put(topic_filter, subscription)
        else:
            subscribers = found
            if not isinstance(subscribers, _Subscribers):
                subscribers = _Subscribers()
                if isinstance(found, Subscription):
                    subscribers.subscriptions[found.session] = found
                self._put(topic_filter, subscribers)
            if group:
                shared = subscribers.groups.setdefault(group, SharedGroup())
                shared.members[subscription.session] = subscription
                shared.changed()
            else:
                subscribers.subscriptions[subscription.session] = subscription
        self._forget(topic_filter)

    def remove(self, session: "Session", full_filter: str) -> None:
        group, topic_filter = split_share(full_filter)
        found = self._find(topic_filter)
        assert found is not None
        is_last = True
        if isinstance(found, _Subscribers):
            if group:
                del found.groups[group].members[session]
                found.groups[group].changed()
                if not found.groups[group].members:
                    del found.groups[group]
            else:
                del found.subscriptions[session]
            is_last = not (found.groups or found.subscriptions)
        if is_last:
            if is_wildcard(topic_filter):
                self._wildcards.remove(topic_filter)
            else:
                del self._exact[topic_filter]
        self._forget(topic_filter)

    def _find(self, topic_filter: str) -> "Subscription | _Subscribers | None":
        return self._wildcards.get(topic_filter) if is_wildcard(topic_filter) else self._exact.get(topic_filter)

    def _put(self, topic_filter: str, found: "Subscription | _Subscribers") -> None:
        if is_wildcard(topic_filter):
            self._wildcards.put(topic_filter, found)
        else:
            self._exact[topic_filter] = found

    def group_changed(self, full_filter: str) -> None:
        """A member of a shared group may have become one that gets messages."""
        group, topic_filter = split_share(full_filter)
        found = self._find(topic_filter)
        assert isinstance(found, _Subscribers)
        found.groups[group].changed()

    def route(self, topic: str) -> Route:
        route = self.routes.get(topic)
        if route is None:
            route = self._compute_route(topic)
            if len(topic) <= CACHED_TOPIC_CHARS_MAX:
                self._make_room(route.own_size)
                self.routes[topic] = route
        return route

    def _make_room(self, receivers: int) -> None:
        """Make room in the cache for a topic with this number of receivers that no other topic shares."""
        self._receivers_held += receivers
        if len(self.routes) >= ROUTES_MAX or self._receivers_held > RECEIVERS_MAX:
            self._forget_all()
            self._receivers_held = receivers

    def _forget_all(self) -> None:
        self.routes.clear()
        self._receivers_held = 0

    def to_filter(self, topic_filter: str) -> "Iterable[Subscription]":
        """The subscriptions to exactly this filter, without shared ones."""
        found = self._find(topic_filter)
        if isinstance(found, _Subscribers):
            return found.subscriptions.values()
        return () if found is None else (found,)

    def matching(self, topic: str) -> "Iterator[Subscription]":
        """All subscriptions that match a topic, also shared ones."""
        for found in self._matching_filters(topic):
            if isinstance(found, Subscription):
                yield found
            else:
                yield from found.subscriptions.values()
                for group in found.groups.values():
                    yield from group.members.values()

    def _forget(self, topic_filter: str) -> None:
        if is_wildcard(topic_filter):
            self._forget_all()
            return
        if (route := self.routes.pop(topic_filter, None)) is not None:
            self._receivers_held -= route.own_size

    def targets(self, topic: str) -> list[Target]:
        """All receivers of a topic, with everything that matters for messages other than plain notifications."""
        route = self.route(topic)
        if route.targets is None:
            route.targets = [Target(matching) for matching in self._matching_subscriptions(topic)[0].values()]
            if topic in self.routes:
                self._make_room(len(route.targets))
                if topic not in self.routes:  # the cache was cleared
                    self.routes[topic] = route
                    self._receivers_held = route.own_size
        return route.targets

    def reaches(self, session: "Session", topic: str) -> bool:
        """Whether a session has a subscription that matches a topic. Shared subscriptions do not count."""
        return any(target.session is session for target in self.targets(topic))

    def _matching_subscriptions(
        self, topic: str
    ) -> "tuple[dict[Session, list[Subscription]], tuple[SharedGroup, ...]]":
        matching: dict[Session, list[Subscription]] = {}
        groups: list[SharedGroup] = []
        for found in self._matching_filters(topic):
            if type(found) is Subscription:
                session = found.session
                if session in matching:
                    matching[session].append(found)
                else:
                    matching[session] = [found]
                continue
            assert isinstance(found, _Subscribers)
            for session, subscription in found.subscriptions.items():
                if session in matching:
                    matching[session].append(subscription)
                else:
                    matching[session] = [subscription]
            groups.extend(found.groups.values())
        return matching, tuple(groups)

    def _compute_route(self, topic: str) -> Route:
        matching, groups = self._matching_subscriptions(topic)
        single: list[Subscription] = []
        others: list[Target] = []
        for subscriptions in matching.values():
            if len(subscriptions) == 1 and not subscriptions[0].identifier:
                single.append(subscriptions[0])
            else:
                others.append(Target(subscriptions))
        plain = [subscription.session for subscription in single]
        no_local = [subscription.session for subscription in single if subscription.no_local]
        special: tuple[Target, ...] = ()
        if others:
            as_it_came = [target for target in others if not target.identifiers and target.without_no_local is None]
            plain += [target.session for target in as_it_came]
            no_local += [target.session for target in as_it_came if target.no_local]
            special = tuple(target for target in others if target.identifiers or target.without_no_local is not None)
        is_wanted = not self._has_additional or bool(groups)
        for session in matching:
            is_wanted = is_wanted or session.link is None or not session.link.is_parent
        key = tuple(plain), tuple(no_local), not is_wanted
        if special or groups:
            return Route(Receivers(*key, special, groups))
        receivers = self._receivers.get(key)
        if receivers is None:
            receivers = self._receivers[key] = Receivers(*key)
        return Route(receivers)

    def _matching_filters(self, topic: str) -> "list[Subscription | _Subscribers]":
        """The subscribers to all filters that match a topic."""
        found = self._wildcards.matching(topic)
        if (exact := self._exact.get(topic)) is not None:
            found.append(exact)
        return found


def split_share(full_filter: str) -> tuple[str, str]:
    """The group and the filter of a shared subscription; the group is empty for any other subscription."""
    if not full_filter.startswith(SHARE):
        return "", full_filter
    group, _, topic_filter = full_filter[len(SHARE) :].partition("/")
    return group, topic_filter
