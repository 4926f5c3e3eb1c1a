"""Runs in which links moved: the moves are read from their logs, and the tree that is compared takes the place of the
first one, so that whatever asks a run for its scenario's tree gets the right one. It needs no Spark.
"""

from dataclasses import replace

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.link_moves import links_ever, moves_of, parents_after, parents_over_time
from brokerbed.analysis.marks import marks_of
from brokerbed.analysis.runs import Finished, Run
from brokerbed.scenario.moved import with_parents
from brokerbed.scenario.topology import TopologyError, Tree, explicit


def followed(finished: Finished) -> Finished:
    """With the moves of those runs whose links may move; their trees are those at the end of the measured time."""
    return replace(finished, runs=tuple(map(_followed, finished.runs)))


def _followed(run: Run) -> Run:
    if run.scenario.placement is None:
        return run
    moves = moves_of(marks_of([run]))
    measured = [move for move in moves if move.time_ns < run.measured_ns[1]]
    try:
        scenario = with_parents(run.scenario, parents_after(run.scenario.tree, measured))
    except (TopologyError, KeyError):
        raise RunError(f"{run.folder / 'log'}: the links that moved make no tree; the log is damaged") from None
    return replace(run, scenario=scenario, moves=tuple(moves), begin=run.scenario)


def trees_of(run: Run) -> list[Tree]:
    """All trees that the run had, one after the other."""
    if run.begin is None or not run.moves:
        return [run.scenario.tree]
    return [explicit(parents) for parents in parents_over_time(run.begin.tree, run.moves)]


def links_of(run: Run) -> list[tuple[str, str]]:
    """Child and parent of every link that there was at some time."""
    return links_ever((run.begin or run.scenario).tree, run.moves)


def tree_at_end(run: Run) -> Tree:
    """The tree after the drain, during which links can still move."""
    late = [move for move in run.moves if move.time_ns >= run.measured_ns[1]]
    return explicit(parents_after(run.scenario.tree, late)) if late else run.scenario.tree
