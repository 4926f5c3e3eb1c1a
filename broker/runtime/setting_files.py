"""Reads the files that the settings of a broker name; whatever is wrong with one is one sentence."""

import tomllib
from pathlib import Path
from typing import Any


class SettingsError(ValueError):
    """The options or the configuration file cannot be used; the text is one sentence."""


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from None


def read_text(folder: Path, file: Any) -> str:
    try:
        return (folder / str(file)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{folder / str(file)}: it cannot be read ({error})") from None


def truth(file: Path | None, key: str, wanted: Any) -> bool:
    if not isinstance(wanted, bool):
        raise SettingsError(f"{file}: {key} must be true or false, not {wanted}")
    return wanted
