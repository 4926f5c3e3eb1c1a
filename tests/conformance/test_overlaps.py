"""Faults that overlap, on every ground: each holds its target for its whole time, and the last one to end releases it."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.overlaps import CROSSING, check, drawn, faults_in
from tests.conformance.runs import Play, everything_arrived
from tests.conformance.runs import play as play_on
from tests.conformance.test_grounds import tree

LATE_S = 0.3


def distribute(cases: list[tuple[str, ...]]) -> list[Any]:
    """Each case on the virtual ground and on one of the real ones in turn, where it takes its time."""
    found: list[Any] = []
    for index, case in enumerate(cases):
        on_docker = index % 2
        found.append(pytest.param("virtual", *case))
        found.append(
            pytest.param("docker", *case, marks=pytest.mark.needs("docker")) if on_docker else ("local", *case)
        )
    return found


@pytest.mark.parametrize(
    ("ground", "target", "part"),
    distribute(
        [
            ("cut: [right, top]", "cut: [right, top]"),
            ("cut: [right, top]", "cut: [right, top], way: top>right"),
            ("disconnect: s", "disconnect: s"),
            ("pause: right", "pause: right"),
            ("crash: right", "crash: right"),
        ]
    ),
)
def test_shorter_fault_within_a_longer_one_of_its_kind_does_not_end_it(
    ground: str, target: str, part: str, tmp_path: Path
) -> None:
    done = play_on(
        ground,
        tmp_path,
        tree("18s", 2) + CROSSING + f"faults: [{{at: 4s, {target}, for: 8s}}, {{at: 6s, {part}, for: 1s}}]\n",
    )
    long, _ = faults_in(done)
    assert long.healed_s - long.seen_s >= 7.9
    check(done, LATE_S)
    everything_arrived(done)


@pytest.mark.parametrize(
    ("ground", "faults"),
    distribute(
        [
            ("{at: 4s, crash: right, for: 2s}, {at: 5s, pause: right, for: 7s}",),
            ("{at: 4s, crash: right, for: 2s}, {at: 6.2s, pause: right, for: 5s}",),
            ("{at: 4s, pause: right, for: 8s}, {at: 5s, crash: right, for: 2s}",),
        ]
    ),
)
def test_pause_holds_a_broker_that_crashes_or_starts_meanwhile(ground: str, faults: str, tmp_path: Path) -> None:
    done = play_on(ground, tmp_path, tree("18s", 2) + CROSSING + f"faults: [{faults}]\n")
    assert len(faults_in(done)) == 2
    check(done, LATE_S)
    assert len(done.events("right", "started")) <= 3
    everything_arrived(done)


@pytest.mark.parametrize(("way", "cut"), [("", "right-top"), (", way: top>right", "top>right")])
def test_healing_of_a_cut_is_confirmed_when_the_link_carries_messages_again(play: Play, way: str, cut: str) -> None:
    """In real time, and for long enough that a TCP which heard nothing would wait for several seconds more."""
    done = play(tree("18s", 1) + CROSSING + f"faults: [{{at: 3s, cut: [right, top]{way}, for: 8s}}]\n")
    _, _, healed, over = done.fault_times_s(f"cut {cut}")
    for end, sender in (("right", "top"), ("top", "right")):
        came = [it["time_ns"] / 1e9 for it in done.events(end, "received", f"{end}>{sender}")]
        assert min(time for time in came if time > healed - 0.1) < over + 0.5, end
    everything_arrived(done)


DRAWS = {"virtual": (range(20), 4), "local": (range(2), 3), "docker": (range(1), 3)}  # seeds, and pairs in each run


def test_pairs_of_faults_drawn_at_random_hold_what_the_model_says(ground: str, tmp_path: Path) -> None:
    seeds, pairs = DRAWS[ground]
    for seed in seeds:
        text = tree(f"{pairs * 8 + 8}s", 2) + CROSSING + drawn(seed, pairs, first_s=3, gap_s=8, mean_s=2)
        done = play_on(ground, tmp_path / str(seed), text, seed=seed)
        check(done, LATE_S, is_other_way_open=ground != "docker")  # there acknowledgements are cut, too
        everything_arrived(done)
