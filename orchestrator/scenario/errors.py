"""The one error that a scenario file can cause."""

from dataclasses import dataclass

PROBLEMS_SHOWN_MAX = 5  # of one file; the rest usually follows from these


@dataclass(frozen=True)
class Problem:
    """One mistake: where it stands and what is allowed there."""

    line: int
    key: str  # dotted, as in topology.width; empty for the file as a whole
    message: str

    def __str__(self) -> str:
        return f"{self.line}: {self.key}: {self.message}" if self.key else f"{self.line}: {self.message}"


class ScenarioError(ValueError):
    """The scenario cannot be used. Each line of the text is one problem: FILE:LINE: KEY: what is wrong."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        assert problems
        self.file = file
        self.problems = problems
        lines = [f"{file}:{problem}" for problem in problems[:PROBLEMS_SHOWN_MAX]]
        if (more := len(problems) - PROBLEMS_SHOWN_MAX) > 0:
            lines.append(f"{file}: and {more} more problem{'s' * (more > 1)}")
        super().__init__("\n".join(lines))
