"""The one error that a scenario file can cause."""

from dataclasses import dataclass

PROBLEMS_SHOWN_MAX = 5  # of one file; the rest usually follows from these


@dataclass(frozen=True)
class Problem:
    """One mistake: where it stands and what is allowed there."""

    line: int | None  # None: there is no file that could be read
    key: str  # dotted, as in topology.width; empty for the file as a whole
    message: str

    def __str__(self) -> str:
        place = "" if self.line is None else f"{self.line}: "
        return f"{place}{self.key}: {self.message}" if self.key else f"{place}{self.message}"


class ScenarioError(ValueError):
    """The scenario cannot be used. Each line of the text is one problem: FILE:LINE: KEY: what is wrong."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        assert problems
        self.file = file
        self.problems = problems
        shown = problems[:PROBLEMS_SHOWN_MAX]
        lines = [f"{file}:{' ' if problem.line is None else ''}{problem}" for problem in shown]
        if (more := len(problems) - PROBLEMS_SHOWN_MAX) > 0:
            lines.append(f"{file}: and {more} more problem{'s' * (more > 1)}")
        super().__init__("\n".join(lines))
