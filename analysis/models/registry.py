"""The models of routing algorithms, by the name of the algorithm: those of this folder, and those of other packages.

Another package registers a model with an entry point of the group `brokerbed.models`, whose name is the algorithm's and
whose value leads to its Model.
"""

from brokerbed.analysis.models import advertisement, covering, hierarchical, merging, peer
from brokerbed.analysis.models.contract import Model
from brokerbed.registry import Registry

MODELS: Registry[Model] = Registry(
    lambda: (
        hierarchical.FLOODING,
        hierarchical.SIMPLE,
        hierarchical.IDENTITY,
        covering.COVERING,
        merging.MERGING,
        peer.PEER,
        advertisement.ADVERTISEMENT,
        advertisement.PEER_ADVERTISEMENT,
    ),
    "brokerbed.models",
)
