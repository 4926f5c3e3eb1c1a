"""Three brokers, and a crash at every single operation of a store in turn: nothing that was acknowledged is lost."""

from dataclasses import replace

import pytest

from tests import routing_oracle as oracle
from tests.virtual.schedules import Schedule, Trial

SCHEDULE = Schedule(
    parents=(-1, 0, 1),
    routing="identity",
    subscribers=((0, "a/#", 1), (2, "a/+", 2), (2, "b/1", 1)),
    toggles=((1000, 1, "a/1"), (3000, 2, "#"), (9000, 1, "a/1")),
    publications=tuple(
        (1500 + 400 * step, broker, topic, qos)
        for step in range(6)
        for broker, topic, qos in ((0, "a/1", 2), (2, "a/1", 1), (1, "b/1", 2))
    ),
    faults=((1600, "cut", 2, 500), (2500, "disconnect", 1, 1000), (4000, "break", 1, 0)),
    advertisements=((500, 0, "a/1"), (600, 2, "a/+")),
    commit_ms=2,
    delay_ms=1,
)  # queues at links and at a client fill and empty, and every message is under way at some commit
COMMITS_MIN = 100
EVERY = ("identity", "peer")  # of the others every seventh, to save time


@pytest.mark.parametrize("routing", oracle.ALL)
def test_crash_at_every_commit(routing: str) -> None:
    schedule = replace(SCHEDULE, routing=routing)
    undisturbed = Trial(schedule)
    assert undisturbed.run() == []
    assert undisturbed.crash.commits > COMMITS_MIN
    for number in range(1, undisturbed.crash.commits + 1, 1 if routing in EVERY else 7):
        for when in ("before", "after"):
            trial = Trial(schedule, crash=(number, when))
            assert trial.run() == [], (number, when)
            assert sum(host.lives for host in trial.hosts) == 1 + len(trial.hosts)


def test_broker_that_acknowledges_first_is_found_out() -> None:
    crashes = ((number, "before") for number in range(1, COMMITS_MIN))
    assert any(Trial(SCHEDULE, acknowledges_first=True, crash=crash).run() for crash in crashes)
