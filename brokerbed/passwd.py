"""The command `brokerbed passwd`: users and their hashed passwords in the password file of a broker."""

import getpass
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from brokerbed.broker.core.passwords import SALT_BYTES, password_line
from brokerbed.options import BadInputError

OWNER_ONLY = 0o600


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the password file; it is created if there is none")],
    user: Annotated[str, typer.Argument(metavar="USER", help="the user name")],
    is_deleted: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
) -> None:
    """Adds a user to a password file, or changes a password.

    The password is asked for on a terminal, or read as one line from standard input; it never stands on the command
    line, which others can read. The file gets a hash of it (scrypt). A running broker reads the file again on SIGHUP.

    Example: brokerbed passwd users alice
    """
    if not user or not user.isprintable() or ":" in user or user.startswith("#") or user != user.strip():
        raise BadInputError(f"a user name has no colon, no control character and no # at the beginning, not {user!r}")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    others = [line for line in lines if line.strip().partition(":")[0] != user]
    if is_deleted:
        if len(others) == len(lines):
            raise BadInputError(f"{file}: there is no user {user}")
        _write(file, others)
        return
    _write(file, [*others, password_line(user, _asked(), secrets.token_bytes(SALT_BYTES))])


def _asked() -> str:
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise BadInputError("the two passwords differ; the file is as it was")
    if not password:
        raise BadInputError("a password is needed, on the terminal or as one line of standard input")
    return password


def _write(file: Path, lines: list[str]) -> None:
    """Replace the file, so that a broker never reads half of it. A new one can be read by its owner only."""
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else OWNER_ONLY
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "w", encoding="utf-8") as written:
        written.writelines(f"{line}\n" for line in lines)
    new.chmod(mode)
    new.replace(file)
