"""What is said of long work: how far it is, what is running, and what is left, also while nothing is reported."""

import time

import pytest

from brokerbed import progress
from brokerbed.progress import Estimate
from brokerbed.scenario.units import duration_text


def test_preparing_is_no_part_of_the_time_left() -> None:
    """100 s until it begins, then a quarter within 10 s: 30 s are left."""
    it = Estimate("it", is_even=True, now_s=0.0)
    assert it.line(50.0) == "it: preparing, 50 s so far"
    it.update(0.0, "", 100.0)
    it.update(0.05, "", 102.0)
    assert it.line(102.0) == "it: 5%, about 38 s left"
    it.update(0.25, "", 110.0)
    assert it.line(110.0) == "it: 25%, about 30 s left"


def test_time_left_of_what_goes_on() -> None:
    """40% were done before; a tenth in 10 s, so the other half takes 50 s."""
    it = Estimate("it", is_even=True, now_s=0.0)
    it.update(0.4, "", 1.0)
    assert it.line(1.0) == "it: 40%, 1 s so far"
    it.update(0.5, "", 11.0)
    assert it.line(11.0) == "it: 50%, about 50 s left"


def test_time_left_falls_while_the_part_that_is_done_stands_still() -> None:
    """One of two runs took 51 s and the other is not done: at first 51 s are left, and never more after that."""
    it = Estimate("it", is_even=True, now_s=0.0)
    it.update(0.0, "", 0.0)
    for second in (51, 61, 91):
        it.update(0.5, "", float(second))
        assert it.line(second) == f"it: 50%, about {51 - (second - 51)} s left"
    it.update(0.5, "", 110.0)
    assert it.line(110.0) == "it: 50%, 1 min 50 s so far"  # the other run takes longer than the first


def test_of_uneven_steps_it_is_said_which_are_running_and_for_how_long() -> None:
    it = Estimate("analysis", is_even=False, now_s=0.0)
    it.update(0.25, "invariants, measurements", 20.0)
    assert it.line(44.0) == "analysis: 25%, invariants, measurements, 44 s so far"


def test_lines_go_on_while_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.01)
    said = ""
    with progress.progress("analysis", is_even=False) as report:
        report(0.5, "measurements")
        end_s = time.monotonic() + 20
        while said.count("measurements") < 3 and time.monotonic() < end_s:
            said += capsys.readouterr().err
            time.sleep(0.01)
    lines = [line for line in said.splitlines() if line.startswith("analysis: 50%, measurements, ")]
    assert len(lines) >= 3
    assert all(line.endswith(" s so far") for line in lines)


def test_durations_as_people_say_them() -> None:
    assert [duration_text(it) for it in (0.2, 42.4, 150.0, 5400.0, 36_000.0)] == [
        "1 s",
        "42 s",
        "2 min 30 s",
        "90 min",
        "10.0 h",
    ]
