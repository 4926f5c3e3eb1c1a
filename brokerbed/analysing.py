"""Starting the analysis of finished runs, for the commands that need it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brokerbed import extras
from brokerbed.analysis.errors import named_in_errors
from brokerbed.analysis.java import need_java

if TYPE_CHECKING:
    from brokerbed.analysis.jobs.analyse import Analysis
    from brokerbed.analysis.runs import Finished


def need_spark() -> None:
    extras.need("analysis", "the analysis")
    need_java()


def analysed(finished: "Sequence[Finished]", master: str | None, verbose: bool) -> "list[Analysis]":
    from brokerbed.analysis.jobs.analyse import analyse as analyse_all
    from brokerbed.progress import progress

    with progress("analysis", is_even=False) as report, named_in_errors(finished[0].folder):
        return list(analyse_all(finished, master, verbose, progress=report))
