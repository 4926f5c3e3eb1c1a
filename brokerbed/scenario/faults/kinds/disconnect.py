"""The connection of a peer is broken, and the peer is kept from connecting again."""

from brokerbed.scenario.faults.contract import FaultKind, Strike
from brokerbed.scenario.faults.network import StruckNetwork
from brokerbed.scenario.faults.targets import PEER, StruckPeers


def strike(network: StruckNetwork, peers: StruckPeers) -> Strike:
    for peer in peers.members:
        network.disconnect(peer)

    def heal() -> None:
        for peer in peers.members:
            network.reconnect(peer)

    return Strike(
        f"disconnect {peers.name}",
        frozenset(),
        heal,
        has_effect=lambda: not any(peer.client.is_connected for peer in peers.members),
        is_over=lambda: all(peer.client.is_settled and not network.is_kept_off(peer) for peer in peers.members),
    )


KIND = FaultKind("disconnect", "The peer's connection is broken.", PEER, strike)
