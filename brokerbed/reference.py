"""docs/cli.md, from the commands themselves: `python -m brokerbed.reference > docs/cli.md`."""

from typing import Any

import typer

from brokerbed.cli import app

HEAD = """\
# Commands
Written by `python -m brokerbed.reference`; a test keeps it current.

Every error is one sentence on stderr. Exit codes: 0 all agrees and every invariant holds (or nothing is judged); 1 it
ran, but a measurement differs from its prediction, is inconclusive or has no prediction, or an invariant does not hold;
2 bad input; 3 something is missing on this machine; 130 Ctrl-C.
"""


def reference() -> str:
    group: Any = typer.main.get_command(app)
    parts = [HEAD]
    for name, command in group.commands.items():
        arguments = " ".join(_argument(it) for it in command.params if it.param_type_name == "argument")
        parts.append(f"## `brokerbed {name}{' ' + arguments if arguments else ''}`\n{_text(command.help)}\n")
        described = [f"- {_argument(it)}: {it.help}" for it in command.params if it.param_type_name == "argument"]
        if described:
            parts.append("\n".join(described) + "\n")
        rows = [_row(it) for it in command.params if it.param_type_name == "option" and "--help" not in it.opts]
        if rows:
            parts.append("| option | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _argument(it: Any) -> str:
    return str(it.metavar or it.name.upper())


def _text(help_: str | None) -> str:
    """Its lines joined to paragraphs, the example as a line of code."""
    paragraphs = [" ".join(it.split()) for it in (help_ or "").split("\n\n")]
    return "\n\n".join(
        f"`{it.removeprefix('Example: ')}`" if it.startswith("Example: ") else it for it in paragraphs if it
    )


def _row(it: Any) -> str:
    names = ", ".join(f"`{name}`" for name in it.opts)
    value = "" if it.is_flag else f" {it.metavar or it.name.upper()}"
    default = "" if it.default in (None, False, ()) or callable(it.default) else f"`{it.default}`"
    again = " May be given several times." if it.multiple else ""
    return f"| {names}{value} | {default} | {' '.join((it.help or '').split())}{again} |"


if __name__ == "__main__":
    print(reference(), end="")
