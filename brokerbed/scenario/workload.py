"""The parts of a workload: what clients do in a run. Each is one record, which all other parts of brokerbed ask.

The modules with the records are in clients/parts, above this layer, because a part acts through clients. The registry
imports them when the first scenario is read. Other packages register parts with entry points of the group
`brokerbed.workload`, whose name is the part's and whose value leads to its WorkloadPart.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brokerbed.registry import Registry, records_in
from brokerbed.scenario.checks import Path, Report
from brokerbed.scenario.demand import Demand

if TYPE_CHECKING:  # format.py builds its keys from these records
    from brokerbed.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class WorkloadPart:
    """Everything that other parts of brokerbed may ask about a part of a workload; none of them tests for its name."""

    name: str  # if it has a section, the key of the scenario file
    summary: str  # one line of documentation
    actors: Callable[["Scenario", Any], Iterable[Callable[..., Any]]]
    # (scenario, section): one function per actor (clients/actor.py), which takes the Crowd and makes the actor. Several
    # processes share the clients of a run, and each of them makes some of the actors.
    section: Any = None  # the pydantic type of its key; None if the key is in format.py, because models read it, too
    check: Callable[[Any, "Scenario", Path, Report], None] = lambda *_: None  # reports what the scenario does not have
    topics: Callable[["Scenario", Any], Iterable[str]] = lambda *_: ()  # (scenario, section): what it publishes to
    filters: Callable[["Scenario", Any], Iterable[str]] = lambda *_: ()  # what it subscribes to
    demand: Callable[["Scenario", Any], Iterable[Demand]] | None = None  # for predictions; None: there are none
    qos: Callable[[Any], int] = lambda _: 0  # (section): of its publications
    excludes: tuple[str, ...] = ()  # keys of the scenario file that do not go with its section
    depends_on_tree: bool = False  # who publishes or subscribes where follows from the tree, so links must not move
    publications_are_poisson: bool = False  # a run tests whether they are
    subscriptions_are_poisson: bool = False


WORKLOAD: Registry[WorkloadPart] = Registry(lambda: records_in("brokerbed.clients.parts", "PART"), "brokerbed.workload")
