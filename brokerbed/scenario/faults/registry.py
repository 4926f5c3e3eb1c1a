"""The kinds of faults by verb: those of the folder `kinds`, and those of other packages.

Another package registers a kind with an entry point of the group `brokerbed.faults`, whose name is the verb and whose
value leads to the FaultKind.
"""

from brokerbed.registry import Registry, records_in
from brokerbed.scenario.faults import kinds
from brokerbed.scenario.faults.contract import FaultKind

FAULTS: Registry[FaultKind] = Registry(lambda: records_in(kinds.__name__, "KIND"), "brokerbed.faults")
