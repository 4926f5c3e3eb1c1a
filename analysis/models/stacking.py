"""The columns of several scenarios side by side, so that a model computes the traffic of all of them at once.

The scenarios have the same tree. `multiplicity` then is a matrix: a row per column of the workload and a column per
scenario; so is every part of the Traffic that a model predicts: a row per broker and a column per scenario.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace

import numpy as np

from brokerbed.analysis.models.contract import Advertisers, Classes, Group, Interest
from brokerbed.scenario.topology import Floats

CELLS_MAX = 1_000_000  # brokers x columns processed at a time, as in analysis/columns.py
Weighted = tuple[Classes, Floats]  # columns, and the weight that they have in each scenario


def stacks(parts: Sequence[Weighted]) -> Iterator[Classes]:
    """As many columns together as fit into memory. Those of subscribers who are not independent stay alone."""
    together: list[Weighted] = []
    cells = 0
    for part in parts:
        classes = part[0]
        if not _is_plain(classes):
            yield replace(classes, multiplicity=_matrix(part))
            continue
        if together and cells + classes.permanent.size > CELLS_MAX:
            yield _stacked(together)
            together, cells = [], 0
        together.append(part)
        cells += classes.permanent.size
    if together:
        yield _stacked(together)


def _is_plain(classes: Classes) -> bool:
    roaming = None if classes.advertisers is None else classes.advertisers.roaming
    return all(each is None for each in (classes.below, classes.above, classes.roaming_covers, roaming))


def _matrix(part: Weighted) -> Floats:
    classes, weights = part
    return np.outer(classes.multiplicity, weights)


def _stacked(parts: Sequence[Weighted]) -> Classes:
    every = [classes for classes, _ in parts]

    def beside(of: Callable[[Classes], Floats]) -> Floats:
        return np.hstack([of(classes) for classes in every])

    def interest(of: Callable[[Classes], Interest]) -> Interest:
        names = [field.name for field in fields(Interest)]
        return Interest(*(beside(lambda classes: getattr(of(classes), name)) for name in names))  # noqa: B023

    has_advertisers = any(classes.advertisers is not None for classes in every)
    return Classes(
        multiplicity=np.vstack([_matrix(part) for part in parts]),
        own=interest(lambda classes: classes.own),
        permanent=beside(lambda classes: classes.permanent),
        wanted_anyway=beside(lambda classes: classes.wanted_anyway),
        publication_rate=beside(lambda classes: classes.publication_rate),
        wide=interest(lambda it: it.wide_interest) if any(it.wide is not None for it in every) else None,
        advertisers=Advertisers(
            beside(lambda classes: classes.all_advertisers.always),
            beside(lambda classes: classes.all_advertisers.appearing_rate),
            beside(lambda classes: classes.all_advertisers.log_odds),
            np.hstack([classes.all_advertisers.is_topic for classes in every]),
        )
        if has_advertisers
        else None,
        groups=tuple(_groups(every)),
    )


def _groups(every: Sequence[Classes]) -> Iterator[Group]:
    start = 0
    for classes in every:
        for group in classes.groups:
            yield replace(group, members=group.members + start, wide=group.wide + start)
        start += len(classes.multiplicity)
