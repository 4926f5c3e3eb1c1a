"""The trie of wildcard filters finds what comparing a topic with every filter finds, however filters come and go."""

from hypothesis import given
from hypothesis import strategies as st

from brokerbed.broker.core.filter_trie import FilterTrie
from brokerbed.topics import matches

LEVELS = st.sampled_from(("a", "b", "", "$c", "+"))
NAMES = st.sampled_from(("a", "b", "", "$c"))
LEVELS_MAX = 6


def _joined(levels: list[str], is_rest: bool) -> str:
    return "/".join([*levels, "#"] if is_rest else levels)


FILTERS = st.builds(_joined, st.lists(LEVELS, min_size=1, max_size=LEVELS_MAX), st.booleans()) | st.just("#")
TOPICS = st.lists(NAMES, min_size=1, max_size=LEVELS_MAX).map("/".join).filter(bool)


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=40), st.lists(TOPICS, min_size=1, max_size=10))
def test_finds_what_comparing_finds(changes: list[tuple[str, bool]], topics: list[str]) -> None:
    trie: FilterTrie[str] = FilterTrie()
    there: set[str] = set()
    for topic_filter, is_added in changes:
        assert trie.get(topic_filter) == (topic_filter if topic_filter in there else None)
        if is_added:
            trie.put(topic_filter, topic_filter)
            there.add(topic_filter)
        elif topic_filter in there:
            trie.remove(topic_filter)
            there.remove(topic_filter)
    for topic in topics:
        assert sorted(trie.matching(topic)) == sorted(it for it in there if matches(it, topic))


def test_a_deep_filter_takes_one_node() -> None:
    """What nobody else shares costs one node, and is one node again when the others have gone."""
    trie: FilterTrie[int] = FilterTrie()
    deep, other = "a/" + "+/b/" * 90 + "c", "a/" + "+/b/" * 45 + "d"
    trie.put(deep, 1)
    assert trie.nodes == 1
    trie.put(other, 2)
    assert trie.nodes == 3  # what they share, and the rest of each
    trie.remove(other)
    assert trie.nodes == 1
    assert trie.matching("a/" + "x/b/" * 90 + "c") == [1]
    trie.remove(deep)
    assert trie.nodes == 0
