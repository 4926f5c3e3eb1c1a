"""Access rules: what users and patterns allow, and what a name put into a pattern cannot widen."""

import pytest

from brokerbed.broker.core.access import AccessError, parse_access
from brokerbed.topics import covers

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
