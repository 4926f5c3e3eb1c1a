"""docs/cli.md, from the commands themselves: `python -m brokerbed.reference > docs/cli.md`."""

from typing import Any

import typer

from brokerbed.cli import app

HEAD = """\
# Commands
Written by `python -m brokerbed.reference`; a test keeps it current.

Every error is one sentence on stderr. Exit codes: 0 all agrees and every invariant holds (or nothing is judged); 1 it
ran, but a measurement differs from its prediction, is inconclusive or has no prediction, or an invariant does not hold;
2 bad input; 3 something is missing on this machine; 4 `gate` cannot tell; 130 Ctrl-C.
"""


def reference() -> str:
    group: Any = typer.main.get_command(app)
    parts = [HEAD]
    for name, command in group.commands.items():
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        words = " ".join(_argument(argument) for argument in arguments)
        parts.append(f"## `brokerbed {name}{' ' + words if words else ''}`\n{_text(command.help)}\n")
        described = [f"- {_argument(argument)}: {argument.help}" for argument in arguments]
        if described:
            parts.append("\n".join(described) + "\n")
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        rows = [_row(option) for option in options if "--help" not in option.opts]
        if rows:
            parts.append("| option | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _text(help_: str | None) -> str:
    """Its lines joined to paragraphs, the example as a line of code."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in (help_ or "").split("\n\n")]
    return "\n\n".join(
        f"`{paragraph.removeprefix('Example: ')}`" if paragraph.startswith("Example: ") else paragraph
        for paragraph in paragraphs
        if paragraph
    )


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    default = "" if option.default in (None, False, ()) or callable(option.default) else f"`{option.default}`"
    again = " May be given several times." if option.multiple else ""
    return f"| {names}{value} | {default} | {' '.join((option.help or '').split())}{again} |"


if __name__ == "__main__":
    print(reference(), end="")
