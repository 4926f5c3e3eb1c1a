"""Plays a page of the documents as a newcomer would: its files are saved and its commands typed, in the order of the page.

A ```yaml block that opens with `# NAME.yaml` is saved under that name. In a ```console block a line after `$ ` is a command,
and what stands below it is its output. A `make` target is not played: .ci/run has to run it.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from brokerbed.orchestrator.run_directory import point_latest_to

ROOT = Path(__file__).parents[2]
PROGRAM = ".venv/bin/brokerbed"
COMMAND_S_MAX = 600  # for a sweep and its analysis on a busy machine
BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHIPPED_ON_VIRTUAL = re.compile(rf"{PROGRAM} run [\w/]+ --on virtual")


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the output that is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *output = part.splitlines()
        yield command, output


@dataclass
class Player:
    folder: Path
    shared: dict[
        str, tuple[str, Path]
    ]  # what runs of shipped scenarios printed, and their directories: all pages are the same there
    outputs: dict[str, str] = field(default_factory=dict)  # by command, without the program

    def play(self, page: str) -> "Player":
        targets = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            if language == "yaml":
                if name := re.match(r"# (\w+\.yaml)\n", text):
                    (self.folder / name[1]).write_text(text, encoding="utf-8")
                continue
            for command, shown in commands(text):
                if command.startswith("make "):
                    assert command in targets, f"{command} is run neither by a test nor by .ci/run"
                    continue
                printed = self._run(command)
                self.outputs[command.removeprefix(f"{PROGRAM} ")] = printed
                if any(shown):
                    assert [line.rstrip() for line in printed.splitlines()] == shown, command
        return self

    def _run(self, command: str) -> str:
        """The output. A run on the virtual ground depends on nothing but its command, so another page's will do."""
        if command in self.shared:
            printed, run = self.shared[command]
            point_latest_to(Path(shutil.copytree(run, self.folder / "runs" / run.name, symlinks=True)))
            return printed
        installed = command.replace(PROGRAM, shlex.quote(str(Path(sys.prefix) / "bin" / "brokerbed")))
        done = subprocess.run(
            f"exec {installed}",  # so that it is the command, and not a shell, that is ended if it takes too long
            shell=True, cwd=self.folder, capture_output=True, text=True, timeout=COMMAND_S_MAX,
        )  # fmt: skip
        is_short = done.returncode == 1 and "inconclusive" in done.stdout and "differs" not in done.stdout
        assert done.returncode == 0 or is_short, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        if SHIPPED_ON_VIRTUAL.fullmatch(command):
            self.shared[command] = done.stdout, (self.folder / "runs" / "latest").resolve()
        return done.stdout
