"""Where Spark finds its Java: JAVA_HOME, PATH, or the runtime that `make setup` fetched into the environment.

Run as a program (`python -m brokerbed.analysis.java`) it fetches that runtime, if none is there yet.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSION_MIN = 17  # Spark 4 needs it
ANSWER_S_MAX = 20  # a Java that takes longer to print its version is broken
FETCHED = Path(sys.prefix) / "java"
ADVICE = f"install Java {VERSION_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


class JavaError(RuntimeError):
    """No Java is installed that is new enough; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    version: int


def find_java() -> Java | None:
    """The first Java that is new enough."""
    for executable in _candidates():
        version = _version(executable)
        if version is not None and version >= VERSION_MIN:
            return Java(executable, version)
    return None


def need_java() -> Java:
    """The Java that Spark uses; JavaError says what to install if there is none."""
    java = find_java()
    if java is None:
        raise JavaError(f"the analysis needs Java, and none was found: {ADVICE}")
    return java


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(FETCHED.glob("*/bin/java"))
    yield from sorted(FETCHED.glob("*/Contents/Home/bin/java"))  # macOS


def _version(executable: Path) -> int | None:
    """17 for `openjdk version "17.0.15"`, 8 for `java version "1.8.0_202"`; None if it does not answer."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=ANSWER_S_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?([0-9]+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def fetch() -> str:
    """Fetches a runtime if there is none, and returns one sentence about the result."""
    if java := find_java():
        return f"Java {java.version}: {java.executable}"
    import jdk  # only setup needs it

    try:
        jdk.install(str(VERSION_MIN), jre=True, path=str(FETCHED))
    except (OSError, jdk.JdkError) as error:
        return f"no Java, and none could be fetched ({error}): before `brokerbed run` or `analyse`, {ADVICE}."
    return f"Java {VERSION_MIN}: fetched into {FETCHED}"


if __name__ == "__main__":
    print(fetch())
