"""Passwords and access rules, with a password file that mosquitto_passwd wrote as the reference."""

import pytest

from brokerbed.broker.core.access import AccessError, parse_access, parse_users, password_line
from brokerbed.topics import covers

# mosquitto_passwd 2.0.11 -b FILE alice secret
BY_MOSQUITTO = "alice:$7$101$Ddm9U7tSCKk+MCuF$V+kGpb0xLVUWWJRj9+hNGsdtUlfbKasuUoHok7JOII6O55jp9iK+X2LAXh7gaK+eM4kMymvA+d1c4eh3nTUu/A=="


def test_users_own_line_is_accepted_and_nothing_else() -> None:
    users = parse_users("# comment\n\n" + password_line("bob", "pass word", b"123456789012") + "\n")
    assert users.accepts("bob", b"pass word")
    assert not users.accepts("bob", b"pass")
    assert not users.accepts("bob", None)
    assert not users.accepts("eve", b"pass word")
    assert not users.accepts(None, b"pass word")


def test_users_file_of_mosquitto_passwd() -> None:
    users = parse_users(BY_MOSQUITTO)
    assert users.accepts("alice", b"secret")
    assert not users.accepts("alice", b"Secret")


@pytest.mark.parametrize("line", ["alice", "alice:plain", "alice:$6$a$b", "alice:$7$x$aa$bb", "alice:$7$0$QQ==$QQ==",
                                  "alice:$7$999999999$QQ==$QQ==", ":$7$101$QQ==$QQ==", "alice:$7$101$!$QQ=="])  # fmt: skip
def test_users_bad_line_is_named(line: str) -> None:
    with pytest.raises(AccessError, match="line 2 "):
        parse_users("# first\n" + line)


ACCESS = """
# everybody without a name
topic read news/#
user alice
topic readwrite alice/#
topic write inbox/+
pattern readwrite own/%c/%u/#
"""


@pytest.mark.parametrize(
    ("mode", "user", "topic", "allowed"),
    [
        ("read", None, "news/today", True),
        ("read", None, "news/#", True),
        ("read", None, "#", False),
        ("write", None, "news/today", False),
        ("read", "alice", "news/today", False),
        ("read", "alice", "alice/+/x", True),
        ("write", "alice", "inbox/bob", True),
        ("write", "alice", "inbox/bob/more", False),
        ("read", "alice", "inbox/bob", False),
        ("write", "alice", "own/c1/alice/x", True),
        ("write", "alice", "own/c2/alice/x", False),
        ("read", "bob", "own/c1/bob/#", True),
        ("read", "bob", "own/#", False),
    ],
)
def test_access(mode: str, user: str | None, topic: str, allowed: bool) -> None:
    assert parse_access(ACCESS).allows(mode, user, "c1", topic) is allowed


def test_access_names_cannot_widen_a_pattern() -> None:
    access = parse_access("pattern read own/%c/#")
    assert not access.allows("read", None, "#", "own/anything")
    assert not access.allows("read", None, "a/b", "own/a/b/x")
    assert not access.allows("read", None, "+", "own/+/x")


@pytest.mark.parametrize("line", ["topic", "topic deny x", "topic read a#", "allow read x", "user", "pattern"])
def test_access_bad_line_is_named(line: str) -> None:
    with pytest.raises(AccessError, match="line 1 "):
        parse_access(line)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [("a/#", "a", True), ("a/#", "a/+", True), ("a/+", "a/#", False), ("+", "#", False), ("#", "$SYS/x", False),
     ("$SYS/#", "$SYS/x", True), ("a/+/c", "a/b/c", True), ("a/b/c", "a/+/c", False), ("a", "a/b", False)],
)  # fmt: skip
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected
