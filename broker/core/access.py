"""Who may connect, publish and subscribe, by files in Mosquitto's formats. Checking is pure; others read the files.

Passwords: `name:$7$iterations$salt$hash` (PBKDF2 with SHA-512), as mosquitto_passwd writes them. Access: `user NAME`
begins the rules of one user, `topic [read|write|readwrite] FILTER` is a rule, `pattern ...` one for everybody in which
%u and %c stand for user name and client id. With an access file, what no rule allows is refused.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

from brokerbed.topics import filter_problem

ITERATIONS_MAX = 20_000  # more would let one CONNECT hold up everybody for tens of milliseconds
SALT_BYTES, HASH_BYTES, ITERATIONS = 12, 64, 101  # what mosquitto_passwd uses
READ, WRITE = "read", "write"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_PASSWORD = re.compile(rf"(?P<name>[^:]+):\$7\$(?P<iterations>[0-9]{{1,9}})\$(?P<salt>{_BASE64})\$(?P<hash>{_BASE64})")
_MODES = {"read": (READ,), "write": (WRITE,), "readwrite": (READ, WRITE)}


OVERLAY = "$overlay"  # the first level of topics on which brokers talk to each other, which no client can read
RESERVED_TOPICS = ("$SYS/", "$share/", "$overlay/")  # nobody publishes to these


class AccessError(ValueError):
    """A line of a password or access file cannot be used."""


@dataclass(frozen=True)
class Users:
    passwords: dict[str, tuple[int, bytes, bytes]]  # iterations, salt, hash

    def accepts(self, name: str | None, password: bytes | None) -> bool:
        known = self.passwords.get(name or "")
        if known is None or password is None:
            return False
        iterations, salt, expected = known
        found = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, len(expected))
        return hmac.compare_digest(found, expected)


def parse_users(text: str) -> Users:
    passwords = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = _PASSWORD.fullmatch(line.strip())
        if parts is None or not 0 < int(parts["iterations"]) <= ITERATIONS_MAX:
            raise AccessError(f"line {number} is not name:$7$iterations$salt$hash, as mosquitto_passwd writes it")
        salt, hashed = base64.b64decode(parts["salt"]), base64.b64decode(parts["hash"])
        passwords[parts["name"]] = (int(parts["iterations"]), salt, hashed)
    return Users(passwords)


def password_line(name: str, password: str, salt: bytes) -> str:
    """The line of a password file for a user."""
    hashed = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS, HASH_BYTES)
    return f"{name}:$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(hashed).decode()}"


@dataclass(frozen=True)
class Rule:
    user: str | None  # None: everybody (a pattern), "": clients without a name
    mode: tuple[str, ...]
    filter: str


@dataclass(frozen=True)
class Access:
    rules: tuple[Rule, ...]

    def allows(self, mode: str, user: str | None, client_id: str, topic_filter: str) -> bool:
        """Whether a rule covers everything that the topic or filter can match."""
        for rule in self.rules:
            if mode not in rule.mode or (rule.user is not None and rule.user != (user or "")):
                continue
            allowed = rule.filter
            if rule.user is None:
                if _is_dangerous(user or "") or _is_dangerous(client_id):
                    continue
                allowed = allowed.replace("%c", client_id).replace("%u", user or "")
            if covers(allowed, topic_filter):
                return True
        return False


def may_publish(access: Access | None, user: str | None, client_id: str, topic: str) -> bool:
    """Whether a client may publish to a topic, now or as its will."""
    if topic[0] == "$" and topic.startswith(RESERVED_TOPICS):
        return False
    return access is None or access.allows(WRITE, user, client_id, topic)


def may_subscribe(access: Access | None, user: str | None, client_id: str, topic_filter: str) -> bool:
    """Whether a client may read everything that a filter, without its shared group, can match."""
    if topic_filter.split("/", 1)[0] == OVERLAY:
        return False
    return access is None or access.allows(READ, user, client_id, topic_filter)


def _is_dangerous(name: str) -> bool:
    """A name that would widen the pattern it is put into."""
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


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that `narrow` matches is matched by `wide`."""
    wide_levels, narrow_levels = wide.split("/"), narrow.split("/")
    if narrow.startswith("$") and wide_levels[0] in ("+", "#"):
        return False
    for position, level in enumerate(wide_levels):
        if level == "#":
            return True
        if position == len(narrow_levels) or narrow_levels[position] == "#":
            return False
        if level not in ("+", narrow_levels[position]):
            return False
    return len(wide_levels) == len(narrow_levels)
