"""What users are told about headline rows that do not agree."""

from types import SimpleNamespace
from typing import Any

import pytest

from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE, Compared
from brokerbed.present import print_advice


def row(metric: str, unit: str, predicted: float | None, verdict: str | None, longer: float | None = None) -> Compared:
    labels = {"publisher": "p", "subscriber": "s"} if unit == "s" else {}
    return Compared(metric, labels, unit, True, predicted, 0.001, None, None, None, verdict, longer)


def told(capsys: pytest.CaptureFixture[str], *rows: Compared, allowed: tuple[Any, ...] = ()) -> str:
    points: Any = [SimpleNamespace(headline=rows)]
    print_advice(points, allowed)
    return capsys.readouterr().err


def test_a_delay_that_is_predicted_as_0(capsys: pytest.CaptureFixture[str]) -> None:
    instant = row("delay.end_to_end", "s", 0.0, DIFFERS)
    assert told(capsys, instant).startswith("differs: delay.end_to_end p -> s is predicted as 0, because nothing")
    assert "p -> s and 1 more are predicted as 0" in told(capsys, instant, instant)


def test_other_rows_have_advice_of_their_own_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        row("delay.end_to_end", "s", 0.0, AGREES),
        row("delay.end_to_end", "s", 0.5, DIFFERS),
        row("r", "1/s", 0.0, DIFFERS),
    )
    assert told(capsys, *rows) == ""
    inconclusive = row("r", "1/s", 1.0, INCONCLUSIVE, 2.5)
    assert "measure 2.5 times longer" in told(capsys, inconclusive)
    assert told(capsys, inconclusive, allowed=(INCONCLUSIVE,)) == ""
    unpredicted = row("r", "1/s", None, None)
    assert "no prediction for 1 of 2 headline rows" in told(capsys, unpredicted, inconclusive, allowed=(INCONCLUSIVE,))
    assert told(capsys, unpredicted, allowed=(None,)) == ""
