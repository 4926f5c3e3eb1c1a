"""A broker is killed, and restarted on the data that it had stored."""

from brokerbed.scenario.faults.contract import FaultKind, Strike
from brokerbed.scenario.faults.network import Host, StruckNetwork
from brokerbed.scenario.faults.targets import BROKER


def strike(network: StruckNetwork, host: Host) -> Strike:
    network.crash(host)
    return Strike(
        f"crash {host.name}",
        network.neighbourhood(host),
        heal=lambda: network.restart(host),
        has_effect=lambda: host.is_dead,
        is_over=lambda: network.is_well(host),
    )


KIND = FaultKind("crash", "kill -9, then restart on the same data.", BROKER, strike, kills_brokers=True)
