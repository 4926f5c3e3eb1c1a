"""The examples of MQTT 5, section 4.7, and its forbidden forms."""

import pytest

from brokerbed.topics import filter_problem, matches, topic_problem


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player2", False),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+/tennis/#", "sport/tennis/a/b", True),
        ("sport/tennis", "sport/tennis/", False),
        ("Sport", "sport", False),
    ],
)
def test_matches_examples_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize("topic_filter", ["#", "+/monitor/Clients", "+"])
def test_matches_no_wildcard_at_dollar_topics_mqtt_4_7_2_1(topic_filter: str) -> None:
    assert not matches(topic_filter, "$SYS/monitor/Clients")
    assert not matches(topic_filter, "$SYS")


def test_matches_dollar_topics_by_name() -> None:
    assert matches("$SYS/#", "$SYS/monitor/Clients")
    assert matches("$SYS/monitor/+", "$SYS/monitor/Clients")


@pytest.mark.parametrize(
    "topic_filter", ["sport/tennis#", "sport/#/ranking", "sport+", "a/b+/c", "", "a\0b", "x" * 65_536]
)
def test_filter_problem_malformed_mqtt_4_7_1(topic_filter: str) -> None:
    assert filter_problem(topic_filter)


@pytest.mark.parametrize("topic_filter", ["#", "+", "+/tennis/#", "sport/+/player1", "/", "a b/ü"])
def test_filter_problem_none(topic_filter: str) -> None:
    assert filter_problem(topic_filter) is None


def test_topic_problem_wildcards_cannot_be_published_to() -> None:
    assert topic_problem("a/+")
    assert topic_problem("#")
    assert topic_problem("") is not None
    assert topic_problem("a/b") is None
