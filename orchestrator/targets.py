"""Target files from which Prometheus discovers the brokers of a run (file-based service discovery).

`targets.json` is in the run directory; a copy, named after the orchestrator's process, is in the folder that
BROKERBED_TARGETS names, so that one Prometheus sees every run. Both are removed when the run ends; the copy of
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
        """`orchestrator` is the address that serves the predictions."""
        self._files = [run_directory / FILE, *(folder / f"{journal.process_name()}.json" for folder in _folder())]
        self._labels = labels
        self._orchestrator = orchestrator

    def write(self, brokers: Mapping[str, Address]) -> None:
        """The name of the broker is a label, because a dead broker cannot report it."""
        groups = [_group(address, {**self._labels, "broker": name}) for name, address in brokers.items()]
        text = json.dumps([*groups, _group(self._orchestrator, self._labels)], indent=1) + "\n"
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_name(f"{file.name}.new")  # readers never see a partly written file
            new.write_text(text, encoding="utf-8")
            new.replace(file)

    def remove(self) -> None:
        for file in self._files:
            with suppress(OSError):  # somebody may have removed the folder, and the file with it
                file.unlink()


def clean() -> list[str]:
    """Removes the copies that killed orchestrators left, and returns descriptions of them."""
    removed = []
    for folder in _folder():
        for file in sorted(folder.glob("*.json")):
            pid, _, began = file.stem.partition("-")
            if pid.isdigit() and began.isdigit() and str(journal.start_ticks(int(pid))) != began:
                file.unlink(missing_ok=True)
                removed.append(f"targets {file}")
    return removed


def _folder() -> Iterator[Path]:
    """The folder that BROKERBED_TARGETS names, if the variable is set."""
    if named := os.environ.get(FOLDER_VARIABLE):
        yield Path(named)


def _group(address: Address, labels: Mapping[str, str]) -> dict[str, object]:
    return {"targets": [f"{address[0]}:{address[1]}"], "labels": dict(labels)}
