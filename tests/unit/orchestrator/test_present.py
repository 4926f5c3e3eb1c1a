"""Progress off a terminal: a line now and then, with what is left."""

import pytest

from orchestrator import present


def test_preparing_is_no_part_of_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 s until it begins, then a quarter within 10 s: 30 s are left."""
    clock = iter([0.0, 100.0, 102.0, 110.0])  # begun, prepared, a twentieth, a quarter
    monkeypatch.setattr("orchestrator.present.time.monotonic", lambda: next(clock))
    with present.progress("it") as tell:
        tell(0.0)
        tell(0.05)
        tell(0.25)
    assert capsys.readouterr().err.splitlines() == ["it: 5%, about 38 s left", "it: 25%, about 30 s left"]


def test_time_left_of_what_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """40% were done before; a tenth in 10 s, so the other half takes 50 s."""
    clock = iter([0.0, 1.0, 6.0, 11.0])
    monkeypatch.setattr("orchestrator.present.time.monotonic", lambda: next(clock))
    with present.progress("it") as tell:
        for part in (0.4, 0.4, 0.5):
            tell(part)
    assert capsys.readouterr().err.splitlines() == ["it: 40%", "it: 50%, about 50 s left"]


def test_of_uneven_parts_nothing_is_said_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 20.0, 21.0])
    monkeypatch.setattr("orchestrator.present.time.monotonic", lambda: next(clock))
    with present.progress("it", is_even=False) as tell:
        for part in (0.0, 0.25, 0.5):
            tell(part)
    assert capsys.readouterr().err.splitlines() == ["it: 25%"]
