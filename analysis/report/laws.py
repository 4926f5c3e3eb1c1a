"""Random durations of a scenario in words: their means and, always, their laws. Pure."""

from collections.abc import Iterator

from brokerbed.analysis.report.scales import number
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber


def told(law: Law) -> str:
    """`mean 12 s, uniform`"""
    spread = f" with cv {number(law.cv if law.cv is not None else 1.0)}" if law.law == "lognormal" else ""
    return f"mean {number(law.mean_s)} s, {law.law}{spread}"


def of_peer(peer: Publisher | Subscriber) -> str:
    """When it is connected, and what its queues take."""
    parts = ["always connected"]
    if peer.on is not None and peer.off is not None:
        parts = [f"ON {told(peer.on)}", f"OFF {told(peer.off)}"]
    if isinstance(peer, Subscriber) and peer.session_service is not None:
        parts.append(f"session service {told(peer.session_service)}")
    if peer.service is not None:
        parts.append(f"service {told(peer.service)}")
    return "; ".join(parts)


def of_network(scenario: Scenario) -> Iterator[tuple[str, Law]]:
    """What is no peer's own: lifetimes of subscriptions, services of brokers, delays of links."""
    if scenario.subscriptions.everywhere is not None:
        yield "lifetime of subscriptions", scenario.subscriptions.everywhere.lifetime
    if scenario.service.broker_in is not None:
        yield "service of brokers", scenario.service.broker_in
    if scenario.service.link is not None:
        yield "service of links", scenario.service.link
    for link in scenario.links:
        if link.delay is not None:
            yield f"delay {' – '.join(link.between)}", link.delay
