"""The models of routing algorithms, by the name of the algorithm: those of this folder, and those of other packages.

Another package registers a model with an entry point of the group `brokerbed.models`, whose name is the algorithm's and
whose value leads to a function like those of hierarchical.py.
"""

from importlib.metadata import entry_points

from brokerbed.analysis.models.hierarchical import Model, flooding, identity, simple

GROUP = "brokerbed.models"
BUILT_IN: dict[str, Model] = {"flooding": flooding, "simple": simple, "identity": identity}


def model_of(routing: str) -> Model | None:
    """None if there is an algorithm of that name, and no model of it."""
    if (found := BUILT_IN.get(routing)) is not None:
        return found
    entry = next(iter(entry_points(group=GROUP, name=routing)), None)
    return None if entry is None else entry.load()
