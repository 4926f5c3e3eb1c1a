"""What is told when something fails that was asked of Spark's Java."""

import pytest
from py4j.protocol import Py4JNetworkError

from brokerbed.analysis.jobs.session import ended_by


def silence_after(first: BaseException) -> None:
    """PySpark asks Java something on the way out, whatever ended it."""
    try:
        raise first
    finally:
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(143)])
def test_interrupt_is_what_ended_it_though_java_did_not_answer_any_more(ending: BaseException) -> None:
    with pytest.raises(Py4JNetworkError) as told:
        silence_after(ending)
    assert ended_by(told.value) is ending


def test_java_that_does_not_answer_was_not_ended_by_anybody() -> None:
    with pytest.raises(Py4JNetworkError) as told:
        silence_after(ConnectionResetError())
    assert ended_by(told.value) is None
