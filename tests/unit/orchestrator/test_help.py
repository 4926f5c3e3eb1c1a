"""What the commands and the documents say of themselves is complete."""

import re
from pathlib import Path
from typing import Any

import typer

from brokerbed.cli import app

ROOT = Path(__file__).parents[3]
OVERVIEW_COLUMNS = 60  # for the first sentence of a command on a terminal of 80


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def test_first_sentence_of_every_command_fits_the_overview() -> None:
    for name, command in commands().items():
        sentence = command.help.partition("\n")[0]
        assert command.get_short_help_str(OVERVIEW_COLUMNS) == sentence, f"{name}: it is cut off"


def test_every_argument_and_option_is_explained() -> None:
    given = [(name, parameter) for name, command in commands().items() for parameter in command.params]
    assert [(name, parameter.name) for name, parameter in given if not parameter.help] == []


def test_documents_build_the_image_before_compose_needs_it() -> None:
    """In every block of commands that brings up the tree of seven."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    starting = [block for block in blocks if re.search(r"deploy/compose\.yaml .*up", block)]
    assert len(starting) == 2
    assert all(block.startswith(".venv/bin/python -m brokerbed.orchestrator.grounds.image\n") for block in starting)
