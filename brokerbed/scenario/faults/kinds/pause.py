"""A broker is suspended, and resumed as it was."""

from brokerbed.scenario.faults.contract import FaultKind, Strike
from brokerbed.scenario.faults.network import Host, StruckNetwork
from brokerbed.scenario.faults.targets import BROKER


def strike(network: StruckNetwork, host: Host) -> Strike:
    network.pause(host)
    return Strike(
        f"pause {host.name}",
        network.neighbourhood(host),
        heal=lambda: network.resume(host),
        has_effect=lambda: host.is_stopped,
        is_over=lambda: network.is_well(host),
    )


KIND = FaultKind("pause", "The broker stands still.", BROKER, strike)
