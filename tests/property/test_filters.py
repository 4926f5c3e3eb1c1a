"""Covering and overlapping of topic filters, against their definition over all topics of a small alphabet."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.routing.filters import FilterIndex
from brokerbed.topics import covers, covers_strictly, filter_problem, matches

LEVELS_MAX = 4  # one more than the filters have, so that `#` is told from everything that ends earlier
# "x" occurs in no filter, so it stands for all levels that no filter names.
TOPICS = [
    topic
    for count in range(1, LEVELS_MAX + 1)
    for levels in product(("a", "b", "", "x", "$s"), repeat=count)
    if (topic := "/".join(levels))
]
FILTERS = [
    topic_filter
    for count in range(1, LEVELS_MAX)
    for levels in product(("a", "b", "", "+", "#", "$s"), repeat=count)
    if not filter_problem(topic_filter := "/".join(levels))
]
MATCHED = {topic_filter: frozenset(filter(lambda it: matches(topic_filter, it), TOPICS)) for topic_filter in FILTERS}
MANY = st.sets(st.sampled_from(FILTERS), max_size=30)


def test_one_filter_covers_another_if_it_matches_all_its_topics() -> None:
    for wide, narrow in product(FILTERS, FILTERS):
        assert covers(wide, narrow) == (MATCHED[wide] >= MATCHED[narrow]), (wide, narrow)
        assert covers_strictly(wide, narrow) == (MATCHED[wide] > MATCHED[narrow]), (wide, narrow)


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("a/#", "a", True), ("a/#", "a/b", True), ("a/#", "a/+/c", True), ("a/+", "a/b", True), ("a/+", "a", False),
        ("a/+", "a/b/c", False), ("#", "$SYS/x", False), ("+/x", "$SYS/x", False), ("a/+", "a/#", False),
    ],
)  # fmt: skip
def test_examples(wide: str, narrow: str, is_covered: bool) -> None:
    assert covers(wide, narrow) == is_covered


@settings(max_examples=300)
@given(MANY, MANY, st.sampled_from(FILTERS))
def test_index_finds_what_the_definition_says(added: set[str], removed: set[str], asked: str) -> None:
    index = FilterIndex()
    for topic_filter in sorted(added | removed):
        index.add(topic_filter)
    for topic_filter in sorted(removed - added):
        index.discard(topic_filter)
    index.discard("a/x/never/added")
    topics = MATCHED[asked]
    assert sorted(index.covered_by(asked)) == sorted(it for it in added if MATCHED[it] < topics)
    assert sorted(index.overlapping(asked)) == sorted(it for it in added if MATCHED[it] & topics)
    assert index.overlaps(asked) == any(MATCHED[it] & topics for it in added)
    cover = index.cover_of(asked)
    covering = {it for it in added if MATCHED[it] > topics}
    assert cover in covering if covering else cover is None


def test_index_keeps_nothing_of_what_was_removed() -> None:
    index = FilterIndex()
    for topic_filter in FILTERS:
        index.add(topic_filter)
    for topic_filter in FILTERS:
        index.discard(topic_filter)
    assert not index._root.children
