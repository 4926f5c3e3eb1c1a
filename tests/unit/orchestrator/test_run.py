"""What is prepared before a run: told of, and interrupted like the run itself."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerbed.orchestrator import run
from brokerbed.orchestrator.grounds.base import Notify
from brokerbed.orchestrator.grounds.virtual import VirtualGround
from brokerbed.scenario import Experiment
from tests.conftest import FromText

TEXT = "{scenario: 1, name: small, clock: {measure: 1s}, topology: {tree: star, brokers: 2}}"


@pytest.fixture
def experiment(from_text: FromText) -> Experiment:
    return from_text(TEXT)


def prepared_by(prepare: Callable[[Notify], None]) -> type[VirtualGround]:
    class Prepared(VirtualGround):
        def prepare(self, notify: Notify) -> None:
            prepare(notify)

    return Prepared


def test_is_told(experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "brokerbed.orchestrator.grounds.virtual.VirtualGround", prepared_by(lambda notify: notify("building ..."))
    )
    said = list[str]()
    run.run(experiment, "virtual", None, 1, tmp_path / "runs", lambda _: None, notify=said.append)
    assert said == ["building ..."]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_is_ended_by_signals(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    """What it had under way can clean up; nothing else is begun."""
    cleaned = list[str]()

    def prepare(_: Notify) -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            cleaned.append("yes")

    monkeypatch.setattr("brokerbed.orchestrator.grounds.virtual.VirtualGround", prepared_by(prepare))
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            run.run(experiment, "virtual", None, 1, tmp_path / "runs", lambda _: None)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert (ended.value.code, cleaned) == (code, ["yes"])
    assert not (tmp_path / "runs").exists()
