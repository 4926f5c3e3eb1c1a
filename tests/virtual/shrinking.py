"""Shrinks a fault schedule to the smallest that still fails, and writes it out as a test."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.virtual.schedules import Schedule, problems


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The smallest schedule on the way that still fails: fewer faults, clients, messages and brokers."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(schedule):
            if fails(smaller):
                schedule, is_smaller = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for field in ("publications", "toggles", "advertisements", "moves", "faults", "subscribers"):
        items = getattr(schedule, field)
        size = len(items) // 2
        while size >= 1:  # halves first, then single ones
            for start in range(0, len(items), size):
                less = items[:start] + items[start + size :]
                if field != "subscribers" or not any(what == "disconnect" for _, what, _, _ in schedule.faults):
                    yield replace(schedule, **{field: less})
            size //= 2
        if len(items) == 1 and field != "subscribers":
            yield replace(schedule, **{field: ()})  # type: ignore[arg-type]
    for broker in range(len(schedule.parents) - 1, 0, -1):
        smaller = _without(schedule, broker)
        if smaller is not None:
            yield smaller
    if schedule.delay_ms:
        yield replace(schedule, delay_ms=0)
    if schedule.refresh_s:
        yield replace(schedule, refresh_s=0)


def _without(schedule: Schedule, broker: int) -> Schedule | None:
    """Without a broker that nothing happens at; its children move up to its parent."""
    changes = (*schedule.toggles, *schedule.advertisements, *schedule.publications)
    at = {it[0] for it in schedule.subscribers} | {it[1] for it in changes}
    at |= {which for _, what, which, _ in schedule.faults if what != "disconnect"}
    at |= {child for _, child, _ in schedule.moves}
    if broker in at:
        return None

    def moved(number: int) -> int:
        return number - (number > broker)

    parents = [schedule.parents[broker] if it == broker else it for it in schedule.parents]
    del parents[broker]
    return replace(
        schedule,
        parents=tuple(map(moved, parents)),
        subscribers=tuple((moved(it), topic_filter, qos) for it, topic_filter, qos in schedule.subscribers),
        toggles=tuple((when, moved(it), topic_filter) for when, it, topic_filter in schedule.toggles),
        advertisements=tuple((when, moved(it), topic_filter) for when, it, topic_filter in schedule.advertisements),
        moves=tuple((when, moved(it), which) for when, it, which in schedule.moves),
        publications=tuple((when, moved(it), topic, qos) for when, it, topic, qos in schedule.publications),
        faults=tuple(
            (when, what, which if what == "disconnect" else moved(which), lasts)
            for when, what, which, lasts in schedule.faults
        ),
    )


TEMPLATE = '''"""A fault schedule that failed: {first}"""

from tests.virtual.schedules import Schedule, problems

SCHEDULE = """
{schedule}
"""


def test_schedule() -> None:
    assert problems(Schedule.read(SCHEDULE), {bug!r}) == []
'''


def as_test(schedule: Schedule, bug: str | None) -> str:
    """A ready pytest file."""
    first = problems(schedule, bug)[0].replace('"', "'")
    return TEMPLATE.format(first=first, schedule=schedule.written(), bug=bug)
