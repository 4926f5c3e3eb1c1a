"""Decides who may publish and subscribe to what, from the text of a file in Mosquitto's format. It reads no files.

In an access file, `user NAME` begins the rules of one user, `topic [read|write|readwrite] FILTER` is a rule, and
`pattern ...` is a rule for everybody in which %u and %c stand for the user name and the client id. If there is an
access file, whatever no rule allows is refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from brokerbed.topics import covers, filter_problem

READ, WRITE = "read", "write"
FILLED_MAX = 10_000  # patterns with names in their places that are kept, of some 200 bytes each
_PLACE = re.compile("%[uc]")
_MODES = {"read": (READ,), "write": (WRITE,), "readwrite": (READ, WRITE)}

OVERLAY = "$overlay"  # the first level of the topics that brokers use among themselves; no client can read them
# No client may publish to topics that begin with these.
RESERVED_TOPICS = ("$SYS/", "$share/", "$overlay/", "$advertise/", "$answered/")


class AccessError(ValueError):
    """A line of a password or access file cannot be used."""


@dataclass(frozen=True)
class Rule:
    mode: tuple[str, ...]
    filter: str


@dataclass(frozen=True)
class Access:
    users: Mapping[str, Sequence[Rule]]  # by user name; "": clients without one
    patterns: Sequence[Rule]  # for everybody

    def allows(self, mode: str, user: str | None, client_id: str, topic_filter: str) -> bool:
        """Whether one rule covers everything that the topic or filter can match."""
        for rule in self.users.get(user or "", ()):
            if mode in rule.mode and covers(rule.filter, topic_filter):
                return True
        for rule in self.patterns:
            if mode in rule.mode:
                allowed = _filled(rule.filter, user or "", client_id)
                if allowed is not None and covers(allowed, topic_filter):
                    return True
        return False


@lru_cache(FILLED_MAX)
def _filled(pattern: str, user: str, client_id: str) -> str | None:
    """A pattern with the names in their places; None if it allows nothing to this client.

    A client chooses its names, so no name may make a pattern match more: it must be one level or a part of one, and no
    pattern but one that begins with $ itself reaches topics that do.
    """
    names = {"%u": user, "%c": client_id}
    for place in _PLACE.findall(pattern):
        if not names[place] or any(character in names[place] for character in "+#/"):
            return None
    filled = _PLACE.sub(lambda place: names[place[0]], pattern)
    return None if filled[0] == "$" != pattern[0] else filled


def may_publish(access: Access | None, user: str | None, client_id: str, topic: str) -> bool:
    """Whether a client may publish to a topic, or to everything that a filter can match."""
    if topic[0] == "$" and topic.startswith(RESERVED_TOPICS):
        return False
    return access is None or access.allows(WRITE, user, client_id, topic)


def may_subscribe(access: Access | None, user: str | None, client_id: str, topic_filter: str) -> bool:
    """Whether a client may read everything that a filter can match. The filter is given without its shared group."""
    if topic_filter.split("/", 1)[0] == OVERLAY:
        return False
    return access is None or access.allows(READ, user, client_id, topic_filter)


def parse_access(text: str) -> Access:
    users: dict[str, list[Rule]] = {}
    patterns: list[Rule] = []
    user = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        kind, *rest = words
        if kind == "user" and len(rest) == 1:
            user = rest[0]
            continue
        mode = _MODES["readwrite"] if len(rest) == 1 else _MODES.get(rest[0]) if len(rest) == 2 else None
        if kind not in ("topic", "pattern") or mode is None or filter_problem(rest[-1]):
            raise AccessError(f"line {number} is none of: user NAME, topic MODE FILTER, pattern MODE FILTER")
        rules = patterns if kind == "pattern" else users.setdefault(user, [])
        rules.append(Rule(mode, rest[-1]))
    return Access(users, patterns)
