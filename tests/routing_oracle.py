"""What every broker should know of its neighbours, and where a notification should go: computed from the definitions of
the routing algorithms, the tree, and what clients subscribe to and advertise; never with the code of the algorithms.

Filters are compared by the topics that they match, out of all topics over a small alphabet. Filters of tests therefore
have at most LEVELS_MAX - 1 levels, each of them in ALPHABET or a wildcard.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple

from brokerbed.topics import matches

LEVELS_MAX = 4
ALPHABET = ("a", "b", "c", "d", "t", "1", "2", "e")  # one of them, "e", is for all levels that occur in no filter
TOPICS = ["/".join(levels) for count in range(1, LEVELS_MAX + 1) for levels in product(ALPHABET, repeat=count)]
ALL = (
    "flooding", "simple", "identity", "covering", "merging", "peer", "advertisement", "peer-advertisement",
)  # fmt: skip
WITHOUT_ROOT = ("peer", "peer-advertisement")
ADVERTISING = ("advertisement", "peer-advertisement")
CLIMBING = ("simple", "identity", "covering", "merging", "flooding")
THRESHOLD = 3  # of merging, by default

Parents = Mapping[str, str | None]
Filters = Mapping[str, Iterable[str]]  # by broker, of all its clients; equal ones may occur several times


@cache
def topics_of(topic_filter: str) -> frozenset[str]:
    return frozenset(topic for topic in TOPICS if matches(topic_filter, topic))


def is_covered(topic_filter: str, others: Iterable[str]) -> bool:
    return any(topics_of(topic_filter) < topics_of(other) for other in others)


def overlaps(topic_filter: str, others: Iterable[str]) -> bool:
    return any(topics_of(topic_filter) & topics_of(other) for other in others)


def subtree(parents: Parents, root: str) -> set[str]:
    found = {root}
    while True:
        more = {name for name, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


class Tables(NamedTuple):
    """By holder and neighbour: the filters that the neighbour wants, and those that it advertises, sorted."""

    entries: dict[tuple[str, str], list[str]]
    advertised: dict[tuple[str, str], list[str]]


def tables(routing: str, parents: Parents, interest: Filters, advertised: Filters) -> Tables:
    found = Tables({}, {})

    def of(filters: Filters, side: set[str]) -> list[str]:
        return [topic_filter for node in sorted(side) for topic_filter in filters.get(node, ())]

    for child, parent in parents.items():
        if parent is None:
            continue
        below, above = subtree(parents, child), set(parents) - subtree(parents, child)
        for holder, neighbour, here, there in ((parent, child, above, below), (child, parent, below, above)):
            wanted = sorted(set(of(interest, there)))
            ads_here, ads_there = set(of(advertised, here)), set(of(advertised, there))
            is_up = holder == parent
            if routing == "simple":
                wanted = sorted(of(interest, there))
            elif routing in ("covering", "merging"):
                wanted = sorted(_reduced(routing, parents, interest, child))
            elif routing == "peer-advertisement" or (routing == "advertisement" and not is_up):
                wanted = [topic_filter for topic_filter in wanted if overlaps(topic_filter, ads_here)]
            has_entries = routing != "flooding" and (is_up or routing in (*WITHOUT_ROOT, "advertisement"))
            has_ads = routing == "peer-advertisement" or (routing == "advertisement" and is_up)
            found.entries[holder, neighbour] = wanted if has_entries else []
            found.advertised[holder, neighbour] = sorted(ads_there) if has_ads else []
    return found


def _reduced(routing: str, parents: Parents, interest: Filters, node: str) -> set[str]:
    """What a broker tells its parent under covering or merging: of the filters that its clients and children want, and
    under merging the filters that stand for several of them, those that no other one covers."""
    wanted = set(interest.get(node, ()))
    for child, parent in parents.items():
        if parent == node:
            wanted |= _reduced(routing, parents, interest, child)
    if routing == "merging":
        siblings = Counter(it.rpartition("/")[0] for it in wanted if "/" in it and it[-1] not in "+#")
        wanted |= {f"{prefix}/+" for prefix, count in siblings.items() if count >= THRESHOLD}
    return {topic_filter for topic_filter in wanted if not is_covered(topic_filter, wanted)}


def crossings(
    routing: str, parents: Parents, entries: Mapping[tuple[str, str], list[str]], origin: str, topic: str,
    is_advertised: bool,
) -> list[str]:  # fmt: skip
    """The links, as sender>receiver, that a notification from a client at `origin` crosses, each once."""
    climbs = routing in CLIMBING or (routing == "advertisement" and not is_advertised)
    floods = routing == "flooding" or (routing == "peer-advertisement" and not is_advertised)
    crossed, waiting = [], [(origin, "")]
    while waiting:
        node, source = waiting.pop()
        neighbours = [name for name, parent in parents.items() if parent == node]
        above = parents[node]
        for neighbour in [*neighbours, *([] if above is None else [above])]:
            is_wanted = any(matches(topic_filter, topic) for topic_filter in entries[node, neighbour])
            if neighbour != source and (is_wanted or floods or (climbs and neighbour == above)):
                crossed.append(f"{node}>{neighbour}")
                waiting.append((neighbour, node))
    return crossed
