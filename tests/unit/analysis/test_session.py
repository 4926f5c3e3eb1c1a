"""What is told when something fails that was asked of Spark's Java."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from brokerbed.analysis.jobs.session import _text, ended_by


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


def test_error_whose_text_cannot_be_read_because_java_is_ending() -> None:
    """Java is asked for the text of an error; where it ends for lack of memory, it no longer answers."""

    class UnreadableError(Py4JError):  # type: ignore[misc]
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    assert _text(UnreadableError("x")) is None
    assert _text(ValueError("readable")) == "readable"
