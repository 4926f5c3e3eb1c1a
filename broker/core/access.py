"""Decides who may publish and subscribe to what, from the text of a file in Mosquitto's format. It reads no files.

In an access file, `user NAME` begins the rules of one user, `topic [read|write|readwrite] FILTER` is a rule, and
`pattern ...` is a rule for everybody in which %u and %c stand for the user name and the client id. If there is an
access file, whatever no rule allows is refused.
"""

from dataclasses import dataclass

from brokerbed.topics import covers, filter_problem

READ, WRITE = "read", "write"
_MODES = {"read": (READ,), "write": (WRITE,), "readwrite": (READ, WRITE)}

OVERLAY = "$overlay"  # the first level of the topics that brokers use among themselves; no client can read them
# No client may publish to topics that begin with these.
RESERVED_TOPICS = ("$SYS/", "$share/", "$overlay/", "$advertise/", "$answered/")


class AccessError(ValueError):
    """A line of a password or access file cannot be used."""


@dataclass(frozen=True)
class Rule:
    user: str | None  # None: a pattern, for everybody; "": clients without a user name
    mode: tuple[str, ...]
    filter: str


@dataclass(frozen=True)
class Access:
    rules: tuple[Rule, ...]

    def allows(self, mode: str, user: str | None, client_id: str, topic_filter: str) -> bool:
        """Whether one rule covers everything that the topic or filter can match."""
        for rule in self.rules:
            if mode not in rule.mode or (rule.user is not None and rule.user != (user or "")):
                continue
            allowed = rule.filter
            if rule.user is None:
                if _would_widen_pattern(user or "") or _would_widen_pattern(client_id):
                    continue
                allowed = allowed.replace("%c", client_id).replace("%u", user or "")
            if covers(allowed, topic_filter):
                return True
        return False


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


def _would_widen_pattern(name: str) -> bool:
    """Whether a user name or client id would make a pattern match more once it is inserted."""
    return any(character in name for character in "+#/")


def parse_access(text: str) -> Access:
    rules = []
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
        rules.append(Rule(None if kind == "pattern" else user, mode, rest[-1]))
    return Access(tuple(rules))
