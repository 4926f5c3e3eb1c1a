"""A short fault campaign, and that it finds what is there to be found. The long one: `make campaign`."""

from pathlib import Path

import pytest

from tests.virtual.campaign import first_problem
from tests.virtual.schedules import BUGS, Schedule, draw, problems
from tests.virtual.shrinking import as_test, shrink

SCHEDULES = 150
FOUND_WITHIN = 1000


def test_random_schedules_end_well() -> None:
    for seed in range(SCHEDULES):
        assert problems(draw(seed)) == [], seed


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found_and_shrunk(bug: str, tmp_path: Path) -> None:
    seed = next(seed for seed in range(FOUND_WITHIN) if first_problem(seed, bug) is not None)
    whole = draw(seed)
    smallest = shrink(whole, lambda it: bool(problems(it, bug)))
    assert len(smallest.parents) <= len(whole.parents)
    assert len(smallest.publications) + len(smallest.toggles) + len(smallest.faults) <= 6
    assert problems(smallest) == []  # it is the bug that fails
    file = tmp_path / "test_it.py"
    file.write_text(as_test(smallest, bug))
    space: dict[str, object] = {}
    exec(compile(file.read_text(), file, "exec"), space)
    with pytest.raises(AssertionError):
        space["test_schedule"]()  # type: ignore[operator]


def test_schedules_can_be_written_and_read() -> None:
    for seed in range(20):
        assert Schedule.read(draw(seed).written()) == draw(seed)


def test_identities_of_subscriptions_differ_between_lives() -> None:
    """Found by the campaign: a broker that was restarted gave a new subscription the identity of an old one."""
    schedule = Schedule(
        parents=(-1, 0), routing="simple", subscribers=((1, "a/+", 1),), toggles=((13_872, 1, "a/+"),),
        publications=(), faults=((1914, "crash", 1, 5000),), commit_ms=0,
    )  # fmt: skip
    assert problems(schedule) == []
