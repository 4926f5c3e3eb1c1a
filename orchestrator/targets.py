"""Where Prometheus finds a run that goes on: files in the format of its file discovery.

`targets.json` is in the run directory; a copy, named after the orchestrator's process, is in the folder that
BROKERBED_TARGETS names, so that one Prometheus sees whichever run goes on. Both are gone when the run ends; the copy of
an orchestrator that was killed is removed by the next run, or by `clean`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from brokerbed.orchestrator.grounds import journal

FILE = "targets.json"
FOLDER_VARIABLE = "BROKERBED_TARGETS"
Address = tuple[str, int]


class Targets:
    def __init__(self, run_directory: Path, labels: Mapping[str, str], orchestrator: Address) -> None:
        """`orchestrator`: where the predictions are."""
        self._files = [run_directory / FILE, *(it / f"{journal.me()}.json" for it in _folder())]
        self._labels = labels
        self._orchestrator = orchestrator

    def write(self, brokers: Mapping[str, Address]) -> None:
        """The broker's name is a label, as a broker that is dead cannot say it."""
        groups = [_group(address, {**self._labels, "broker": name}) for name, address in brokers.items()]
        text = json.dumps([*groups, _group(self._orchestrator, self._labels)], indent=1) + "\n"
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_name(f"{file.name}.new")  # no reader sees a half of it
            new.write_text(text, encoding="utf-8")
            new.replace(file)

    def remove(self) -> None:
        for file in self._files:
            with suppress(OSError):  # whoever has removed the folder has done it
                file.unlink()


def clean() -> list[str]:
    """Removes the copies that killed orchestrators left; which they were."""
    found = []
    for folder in _folder():
        for file in sorted(folder.glob("*.json")):
            pid, _, began = file.stem.partition("-")
            if pid.isdigit() and began.isdigit() and str(journal.began(int(pid))) != began:
                file.unlink(missing_ok=True)
                found.append(f"targets {file}")
    return found


def _folder() -> Iterator[Path]:
    """That of BROKERBED_TARGETS, if it is set."""
    if named := os.environ.get(FOLDER_VARIABLE):
        yield Path(named)


def _group(address: Address, labels: Mapping[str, str]) -> dict[str, object]:
    return {"targets": [f"{address[0]}:{address[1]}"], "labels": dict(labels)}
