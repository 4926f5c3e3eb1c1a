"""A reference broker in as few lines as possible: what clients must see, by the standards. It shares no code with ours.

Nothing is under way here: a client that is connected has read and acknowledged everything. `take(client)` gives what
it must have got since the last call. Shared groups leave a choice, so `group_due` says which clients may get a message.
"""

import re
from dataclasses import dataclass, field

FOREVER_S = 0xFFFF_FFFF
GROUP = re.compile(r"\$share/[^/]+/(.*)")


@dataclass(frozen=True)
class Sent:
    """A message as its publisher has sent it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dies_s: float | None = None


@dataclass(frozen=True)
class Got:
    """A message as a subscriber gets it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    dies_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Will:
    message: Sent
    delay_s: float = 0


@dataclass(frozen=True)
class Wanted:
    """A subscription. Clients before version 5 have the defaults."""

    topic_filter: str
    qos: int
    no_local: bool = False
    as_published: bool = False
    handling: int = 0  # of retained messages
    identifier: int = 0


class Session:
    def __init__(self, expiry_s: float) -> None:
        self.expiry_s = expiry_s
        self.wanted: dict[str, Wanted] = {}
        self.queue: list[Got] = []
        self.ends_s: float | None = None  # while it is offline
        self.will: Will | None = None
        self.will_s: float | None = None  # when it is sent, once its connection is gone


class ReferenceBroker:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.sessions: dict[str, Session] = {}
        self.connected: set[str] = set()
        self.retained: dict[str, Sent] = {}
        self.group_due: dict[bytes, set[str]] = {}  # payload -> who may get it, exactly one of them
        self.uncertain: set[bytes] = set()  # ... unless it was queued for a session that has ended
        self._got: dict[str, list[Got]] = {}

    # -- what clients do ----------------------------------------------------------------------------------------

    def connect(self, client: str, is_clean: bool, expiry_s: float, will: Will | None) -> bool:
        """Whether a session was present."""
        if client in self.connected:
            self.drop(client)  # [MQTT-3.1.4-3]
        if is_clean and client in self.sessions:
            self._end(client)
        is_present = client in self.sessions
        session = self.sessions.setdefault(client, Session(expiry_s))
        session.expiry_s, session.ends_s = expiry_s, None
        session.will, session.will_s = will, None
        self.connected.add(client)
        self._got.setdefault(client, []).extend(
            it for it in session.queue if it.dies_s is None or it.dies_s > self.now_s
        )
        session.queue = []
        return is_present

    def disconnect(self, client: str, sends_will: bool = False) -> None:
        if not sends_will:
            self.sessions[client].will = None  # [MQTT-3.14.4-3]
        self.drop(client)

    def drop(self, client: str) -> None:
        """The connection is gone. The will is sent after its delay, or with the end of the session."""
        self.connected.discard(client)
        session = self.sessions[client]
        session.ends_s = None if session.expiry_s == FOREVER_S else self.now_s + session.expiry_s
        if session.will is not None:
            session.will_s = self.now_s + min(session.will.delay_s, session.expiry_s)
        self.wait(0)

    def subscribe(self, client: str, wanted: Wanted) -> None:
        session = self.sessions[client]
        is_new = wanted.topic_filter not in session.wanted
        session.wanted[wanted.topic_filter] = wanted
        if GROUP.match(wanted.topic_filter) or wanted.handling == 2 or (wanted.handling == 1 and not is_new):
            return
        for topic, message in sorted(self.retained.items()):
            is_dead = message.dies_s is not None and message.dies_s <= self.now_s
            if matches(wanted.topic_filter, topic) and not is_dead:
                identifiers = (wanted.identifier,) if wanted.identifier else ()
                qos = min(message.qos, wanted.qos)
                self._got[client].append(Got(topic, message.payload, qos, True, identifiers, message.dies_s))

    def unsubscribe(self, client: str, topic_filter: str) -> None:
        self.sessions[client].wanted.pop(topic_filter, None)

    def publish(self, publisher: str, message: Sent) -> None:
        if message.retain and message.payload:
            self.retained[message.topic] = message  # [MQTT-3.3.1-5]
        elif message.retain:
            self.retained.pop(message.topic, None)  # [MQTT-3.3.1-6]
        for client, session in self.sessions.items():
            matching = [
                it for it in session.wanted.values()
                if matches(it.topic_filter, message.topic) and not (it.no_local and client == publisher)
            ]  # fmt: skip
            if matching:
                qos = min(message.qos, max(it.qos for it in matching))
                retain = message.retain and any(it.as_published for it in matching)
                identifiers = tuple(sorted(it.identifier for it in matching if it.identifier))
                self._deliver(client, Got(message.topic, message.payload, qos, retain, identifiers, message.dies_s))
        self._publish_to_groups(message)

    # -- what happens by itself ---------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass: wills are sent and sessions end in the order in which that is due."""
        end_s = self.now_s + seconds
        while True:
            due = [(it.will_s, 0, name) for name, it in self.sessions.items() if it.will_s is not None]
            due += [(it.ends_s, 1, name) for name, it in self.sessions.items() if it.ends_s is not None]
            if not due or min(due)[0] > end_s:
                break
            at_s, is_end, name = min(due)
            self.now_s = max(self.now_s, at_s)
            if is_end:
                self._end(name)
            else:
                self._send_will(name)
        self.now_s = end_s

    def restart(self) -> None:
        """Killed and started again: no wills are sent, and the expiry of sessions begins anew."""
        for name, session in list(self.sessions.items()):
            session.will, session.will_s = None, None
            if name in self.connected:
                session.ends_s = None if session.expiry_s == FOREVER_S else self.now_s + session.expiry_s
            if session.expiry_s == 0:
                self._end(name)
        self.connected.clear()

    def take(self, client: str) -> list[Got]:
        got, self._got[client] = self._got.get(client, []), []
        return got

    def _deliver(self, client: str, got: Got) -> None:
        if client in self.connected:
            self._got[client].append(got)
        elif got.qos:
            self.sessions[client].queue.append(got)

    def _publish_to_groups(self, message: Sent) -> None:
        """Only one group at a time is provided for."""
        groups = ((client, GROUP.match(it)) for client, session in self.sessions.items() for it in session.wanted)
        members = {client for client, group in groups if group and matches(group[1], message.topic)}
        if members:
            self.group_due[message.payload] = members & self.connected or members

    def _send_will(self, client: str) -> None:
        session = self.sessions[client]
        will, session.will, session.will_s = session.will, None, None
        if will is not None:
            self.publish(client, will.message)

    def _end(self, client: str) -> None:
        self._send_will(client)
        del self.sessions[client]
        self.uncertain |= {payload for payload, may_get in self.group_due.items() if client in may_get}


def matches(topic_filter: str, topic: str) -> bool:
    """Section 4.7, for topics that do not begin with a dollar sign."""
    parts = [re.escape(part) for part in topic_filter.split("/")]
    pattern = "/".join("[^/]*" if part == re.escape("+") else part for part in parts)
    pattern = re.sub(r"(^|/)\\#$", lambda it: "(|/.*)" if it[1] else ".*", pattern)
    return not topic_filter.startswith("$share/") and re.fullmatch(pattern, topic) is not None
