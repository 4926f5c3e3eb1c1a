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


PATTERNS = parse_access(
    """
pattern read own/%c/#
pattern write of/%u/%c
pattern read %c/x
pattern read dev-%c-of-%u/+
pattern read news/#
pattern read $SYS/%c
"""
)


@pytest.mark.parametrize("name", ["+", "#", "/", "a/b", "a+", "#a", "../a", ""])
def test_name_with_a_wildcard_or_a_slash_or_without_characters_fills_no_pattern(name: str) -> None:
    """Whatever it might be taken for, on either place: no topic is opened by it, but rules without a place hold."""
    for topic in ("own/anything", "own/a/b/x", "own/+/x", "own//x", "own/#", f"own/{name}/x", "own/#/x"):
        assert not PATTERNS.allows("read", "alice", name, topic)
    for topic in ("of/alice/x", "of//c1", "of/+/c1", "of/a/b", f"of/{name}/c1", "of/#"):
        assert not PATTERNS.allows("write", name, "c1", topic)
        assert not PATTERNS.allows("write", None, "c1", topic)
    assert PATTERNS.allows("read", name, name, "news/today")


def test_name_that_looks_like_a_place_is_not_filled_again() -> None:
    """The client id %u is not the user name, nor is the user name %c the client id."""
    assert not PATTERNS.allows("read", "alice", "%u", "own/alice/x")
    assert PATTERNS.allows("read", "alice", "%u", "own/%u/x")
    assert not PATTERNS.allows("write", "%c", "c1", "of/c1/c1")
    assert PATTERNS.allows("write", "%c", "c1", "of/%c/c1")


def test_name_that_begins_with_a_dollar_opens_no_topic_of_the_broker() -> None:
    assert not PATTERNS.allows("read", "alice", "$SYS", "$SYS/x")
    assert not PATTERNS.allows("read", "alice", "$SYS", "$SYS/$SYS/x")
    assert PATTERNS.allows("read", "alice", "$SYS", "own/$SYS/x")
    assert PATTERNS.allows("read", "alice", "load", "$SYS/load")


def test_name_can_be_a_part_of_a_level() -> None:
    assert PATTERNS.allows("read", "bob", "c1", "dev-c1-of-bob/t")
    assert not PATTERNS.allows("read", "bob", "c1", "dev-c1-of-alice/t")
    assert not PATTERNS.allows("read", "bob", "c1", "dev-c1-of-bob/t/u")


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
