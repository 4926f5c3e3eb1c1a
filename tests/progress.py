"""What a command says on stderr beside its progress and the time it expects, which depend on how fast the machine is."""

import re


def without_progress(errors: str) -> list[str]:
    progress = re.compile(r", (about .* left|.* so far)$|^this will take ")
    return [line for line in errors.splitlines() if not progress.search(line)]
