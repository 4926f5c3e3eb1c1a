"""Who subscribed to what, and whom a topic reaches.

Exact filters are a dictionary, wildcard filters a trie. What a topic reaches is remembered until it may have changed:
an exact filter's change forgets that topic, a wildcard's change forgets all.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from brokerbed.broker.values import CACHED_TOPIC_CHARS_MAX
from brokerbed.log.record import ADDITIONAL
from brokerbed.topics import is_wildcard

if TYPE_CHECKING:
    from brokerbed.broker.core.session import Session

ROUTES_MAX = 100_000  # topics remembered; beyond that all are forgotten and learnt anew
RECEIVERS_MAX = 1_000_000  # remembered for all topics together, some 100 MB; beyond that, too
SHARE = "$share/"


class Subscription:
    """One session's subscription to one filter."""

    __slots__ = (
        "filter",
        "identifier",
        "identity",
        "no_local",
        "number",
        "qos",
        "retain_as_published",
        "session",
        "uses",
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
        self.identifier = identifier  # 0: none
        self.wants_retained = True  # when it is new
        self.identity = ""  # in the overlay
        self.number = 0  # of its row in the store; 0: it has none
        self.uses = 1  # by a child link: how many subscriptions below it stand behind this one


class Target:
    """One receiver of a topic: all subscriptions of a session that match, as one."""

    __slots__ = ("identifiers", "no_local", "own", "qos", "retain_as_published", "session")

    def __init__(self, matching: list[Subscription]) -> None:
        """Overlapping subscriptions: one copy, the highest QoS, every identifier (section 3.3.4)."""
        first = matching[0]
        self.session = first.session
        if len(matching) == 1:
            self.qos, self.retain_as_published, self.no_local = first.qos, first.retain_as_published, first.no_local
            self.identifiers: tuple[int, ...] = (first.identifier,) if first.identifier else ()
            self.own: Target | None = None
            return
        self.qos = max(it.qos for it in matching)
        self.retain_as_published = any(it.retain_as_published for it in matching)
        self.identifiers = tuple(it.identifier for it in matching if it.identifier)
        others = [it for it in matching if not it.no_local]
        self.no_local = len(others) < len(matching)
        self.own = Target(others) if self.no_local and others else None  # for what the session itself published

    def for_publisher(self, publisher: object) -> "Target | None":
        """This target, or what No Local leaves of it if the session is the publisher."""
        return self.own if self.no_local and self.session is publisher else self


class SharedGroup:
    """The members of one $share group and filter, served in turn."""

    __slots__ = ("_in_order", "members", "turn")

    def __init__(self) -> None:
        self.members: dict[Session, Subscription] = {}
        self.turn = 0
        self._in_order: list[Subscription] = []  # the members, made when needed after a change

    def changed(self) -> None:
        """Somebody has joined or left."""
        self._in_order = []

    def next_member(self) -> Subscription:
        """The next in turn that is connected; if none is, the next in turn."""
        members = self._in_order
        if not members:
            members = self._in_order = list(self.members.values())
        for offset in range(len(members)):
            member = members[(self.turn + offset) % len(members)]
            if member.session.connection is not None:
                self.turn = (self.turn + offset + 1) % len(members)
                return member
        self.turn = (self.turn + 1) % len(members)
        return members[self.turn - 1]


class Receivers:
    """Those whom a notification at QoS 0 reaches. One object for all topics of which they are the same."""

    __slots__ = (
        "__weakref__", "groups", "has_others", "is_additional", "log_flags", "log_number", "plain", "silent", "special"
    )  # fmt: skip

    def __init__(
        self,
        plain: tuple["Session", ...],
        silent: tuple["Session", ...],
        is_additional: bool,
        special: tuple[Target, ...] = (),
        groups: tuple[SharedGroup, ...] = (),
    ) -> None:
        self.plain = plain  # they get it just as it came
        self.special = special
        self.groups = groups
        self.has_others = bool(special or groups)
        self.silent = silent  # those of them who do not get what they published
        self.is_additional = is_additional  # the notification climbs, but nobody here or below wants it
        self.log_flags = ADDITIONAL * is_additional
        self.log_number = -1  # of the plain receivers in the log, given when first needed


class Route:
    """Whom a topic reaches. There is one for every topic in use, so it is as small as can be."""

    __slots__ = ("log_topic", "receivers")

    def __init__(self, receivers: Receivers) -> None:
        self.receivers = receivers
        self.log_topic = -1  # number in the log, given when first needed

    @property
    def is_empty(self) -> bool:
        return not (self.receivers.plain or self.receivers.has_others)

    @property
    def own_size(self) -> int:
        """How many receivers are held for this topic alone."""
        receivers = self.receivers
        return len(receivers.plain) + len(receivers.special) if receivers.has_others else 0


class _Node:
    __slots__ = ("children", "groups", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subscriptions: dict[Session, Subscription] = {}
        self.groups: dict[str, SharedGroup] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.children or self.subscriptions or self.groups)


class Subscriptions:
    def __init__(self, is_flooded: bool = False) -> None:
        """`is_flooded`: nobody can know whether a notification is wanted below, so none is called additional."""
        self._is_flooded = is_flooded
        self._exact: dict[str, _Node] = {}
        self._root = _Node()
        self.routes: dict[str, Route] = {}  # those that are known; ask route() for others
        self._targets: dict[str, list[Target]] = {}  # of those topics that had other messages than notifications
        self._receivers_held = 0  # in those two, but for what topics share
        self._receivers: WeakValueDictionary[Any, Receivers] = WeakValueDictionary()  # of those routes

    def add(self, subscription: Subscription) -> None:
        group, topic_filter = split_share(subscription.filter)
        node = self._node(topic_filter, create=True)
        assert node is not None
        if group:
            shared = node.groups.setdefault(group, SharedGroup())
            shared.members[subscription.session] = subscription
            shared.changed()
        else:
            node.subscriptions[subscription.session] = subscription
        self._forget(topic_filter)

    def remove(self, session: "Session", full_filter: str) -> None:
        group, topic_filter = split_share(full_filter)
        node = self._node(topic_filter, create=False)
        assert node is not None
        if group:
            del node.groups[group].members[session]
            node.groups[group].changed()
            if not node.groups[group].members:
                del node.groups[group]
        else:
            del node.subscriptions[session]
        if node.is_empty:
            self._prune(topic_filter)
        self._forget(topic_filter)

    def route(self, topic: str) -> Route:
        route = self.routes.get(topic)
        if route is None:
            route = self._find(topic)
            if len(topic) <= CACHED_TOPIC_CHARS_MAX:
                self._make_room(route.own_size)
                self.routes[topic] = route
        return route

    def _make_room(self, receivers: int) -> None:
        """For what is about to be remembered of a topic, with so many receivers that no other topic shares."""
        self._receivers_held += receivers
        if len(self.routes) >= ROUTES_MAX or self._receivers_held > RECEIVERS_MAX:
            self._forget_all()
            self._receivers_held = receivers

    def _forget_all(self) -> None:
        self.routes.clear()
        self._targets.clear()
        self._receivers_held = 0

    def to_filter(self, topic_filter: str) -> "Iterable[Subscription]":
        """The subscriptions, but shared ones, to just this filter."""
        node = self._node(topic_filter, create=False)
        return node.subscriptions.values() if node is not None else ()

    def _forget(self, topic_filter: str) -> None:
        if is_wildcard(topic_filter):
            self._forget_all()
            return
        if (route := self.routes.pop(topic_filter, None)) is not None:
            self._receivers_held -= route.own_size
        if (targets := self._targets.pop(topic_filter, None)) is not None:
            self._receivers_held -= len(targets)

    def targets(self, topic: str) -> list[Target]:
        """All receivers of a topic, with all that matters for messages that are no notifications."""
        targets = self._targets.get(topic)
        if targets is None:
            targets = [Target(them) for them in self._found(topic)[0].values()]
            if len(topic) <= CACHED_TOPIC_CHARS_MAX:
                self.route(topic)  # so that topics with targets are under the limit of routes, too
                self._make_room(len(targets))
                self._targets[topic] = targets
        return targets

    def _found(self, topic: str) -> "tuple[dict[Session, list[Subscription]], tuple[SharedGroup, ...]]":
        matching: dict[Session, list[Subscription]] = {}
        groups: list[SharedGroup] = []
        for node in self._matching(topic):
            for session, subscription in node.subscriptions.items():
                matching.setdefault(session, []).append(subscription)
            if node.groups:
                groups.extend(node.groups.values())
        return matching, tuple(groups)

    def _find(self, topic: str) -> Route:
        matching, groups = self._found(topic)
        alone: list[Subscription] = []
        others: list[Target] = []
        for them in matching.values():
            if len(them) == 1 and not them[0].identifier:
                alone.append(them[0])
            else:
                others.append(Target(them))
        plain = [it.session for it in alone]
        silent = [it.session for it in alone if it.no_local]
        special: tuple[Target, ...] = ()
        if others:
            plain += [it.session for it in others if not it.identifiers and it.own is None]
            silent += [it.session for it in others if not it.identifiers and it.own is None and it.no_local]
            special = tuple(it for it in others if it.identifiers or it.own is not None)
        is_wanted = self._is_flooded or bool(groups)
        for session in matching:
            is_wanted = is_wanted or session.link is None or not session.link.is_parent
        key = tuple(plain), tuple(silent), not is_wanted
        if special or groups:
            return Route(Receivers(*key, special, groups))
        receivers = self._receivers.get(key)
        if receivers is None:
            receivers = self._receivers[key] = Receivers(*key)
        return Route(receivers)

    def _matching(self, topic: str) -> Iterator[_Node]:
        if (exact := self._exact.get(topic)) is not None:
            yield exact
        levels = topic.split("/")
        nodes = [self._root]
        for depth, level in enumerate(levels):
            wild = depth > 0 or not topic.startswith("$")  # [MQTT-4.7.2-1]
            following = []
            for node in nodes:
                if wild and (rest := node.children.get("#")) is not None:
                    yield rest
                if (child := node.children.get(level)) is not None:
                    following.append(child)
                if wild and (child := node.children.get("+")) is not None:
                    following.append(child)
            nodes = following
            if not nodes:
                return
        for node in nodes:
            yield node
            if (rest := node.children.get("#")) is not None:
                yield rest

    def _node(self, topic_filter: str, create: bool) -> _Node | None:
        if not is_wildcard(topic_filter):
            return self._exact.setdefault(topic_filter, _Node()) if create else self._exact.get(topic_filter)
        node: _Node | None = self._root
        for level in topic_filter.split("/"):
            assert node is not None
            node = node.children.setdefault(level, _Node()) if create else node.children.get(level)
        return node

    def _prune(self, topic_filter: str) -> None:
        if not is_wildcard(topic_filter):
            del self._exact[topic_filter]
            return
        levels = topic_filter.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path[1:]), strict=True):
            if not node.is_empty:
                return
            del parent.children[level]


def split_share(full_filter: str) -> tuple[str, str]:
    """Group and filter of a shared subscription; an empty group for any other."""
    if not full_filter.startswith(SHARE):
        return "", full_filter
    group, _, topic_filter = full_filter[len(SHARE) :].partition("/")
    return group, topic_filter
