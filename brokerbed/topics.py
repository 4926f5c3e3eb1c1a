"""MQTT topic names and topic filters: what is well formed and what matches what (MQTT 5, section 4.7).

Owns the two questions of section 4.7 and nothing else; who subscribed to what is not its business.
"""

TOPIC_BYTES_MAX = 65_535  # the two-byte length prefix of an MQTT string
ADVERTISE = "$advertise/"  # a client advertises a filter by subscribing to this and the filter
REPLIES = "reply/+"  # matches the topic of every requester's answers, reply/<id>; responders advertise it
_EQUIVALENT = {"#": ("+", "#"), "/#": ("", "+", "#")}  # a topic has at least one character
SLASHES_MAX = 200  # in a topic or filter, as with Mosquitto; nobody needs more, and matching costs time per level


def topic_problem(topic: str) -> str | None:
    """Why `topic` cannot be published to, or None if it can."""
    if is_wildcard(topic):
        return "a topic that is published to has no wildcards (+ or #)"
    return _string_problem(topic)


def filter_problem(topic_filter: str) -> str | None:
    """Why `topic_filter` cannot be subscribed to, or None if it can."""
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            return "# must be the whole last level of a filter, as in a/b/#"
        if "+" in level and level != "+":
            return "+ must be a whole level of a filter, as in a/+/b"
    return _string_problem(topic_filter)


def is_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a subscription to `topic_filter` receives what is published to `topic`."""
    if topic_filter == topic:
        return True
    filter_levels = topic_filter.split("/")
    topic_levels = topic.split("/")
    if topic.startswith("$") and filter_levels[0] in ("+", "#"):
        return False  # [MQTT-4.7.2-1]
    for position, level in enumerate(filter_levels):
        if level == "#":
            return True
        if position == len(topic_levels) or level not in ("+", topic_levels[position]):
            return False
    return len(filter_levels) == len(topic_levels)


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every topic that `narrow` matches. Both are filters without shared groups."""
    wide_levels, narrow_levels = filter_levels(wide), filter_levels(narrow)
    if narrow_levels[0].startswith("$") and wide_levels[0] == "+":
        return False
    for position, level in enumerate(wide_levels):
        if level == "#":
            return True
        if position == len(narrow_levels) or narrow_levels[position] == "#":
            return False
        if level not in ("+", narrow_levels[position]):
            return False
    return len(wide_levels) == len(narrow_levels)


def covers_strictly(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every topic that `narrow` matches, and others."""
    return covers(wide, narrow) and not covers(narrow, wide)


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both filters."""
    levels, others = filter_levels(one), filter_levels(other)
    for first, second in ((levels[0], others[0]), (others[0], levels[0])):
        if first == "+" and second.startswith("$"):
            return False
    for level, other_level in zip(levels, others, strict=False):
        if "#" in (level, other_level):
            return True
        if level != other_level and "+" not in (level, other_level):
            return False
    longer = max(levels, others, key=len)
    return len(levels) == len(others) or longer[min(len(levels), len(others)) :] == ("#",)


def merged_filter(topic_filter: str) -> str | None:
    """The filter for all filters that differ from this one only in the last level; None if there is none."""
    prefix, slash, last = topic_filter.rpartition("/")
    return f"{prefix}/+" if slash and last not in ("+", "#") else None


def filter_levels(topic_filter: str) -> tuple[str, ...]:
    """The levels of a filter. Of two different filters that match the same topics it takes the longer one."""
    return _EQUIVALENT.get(topic_filter) or tuple(topic_filter.split("/"))


def _string_problem(text: str) -> str | None:
    if not text:
        return "a topic has at least one character"
    if "\0" in text:
        return "a topic cannot hold the null character"
    if text.count("/") > SLASHES_MAX:
        return f"a topic has at most {SLASHES_MAX} slashes"
    if len(text.encode("utf-8", "surrogatepass")) > TOPIC_BYTES_MAX:
        return f"a topic has at most {TOPIC_BYTES_MAX} bytes"
    return None
