"""Describes the random durations of a scenario by their means and laws. Pure."""

from collections.abc import Iterator

from brokerbed.analysis.report.scales import number
from brokerbed.scenario import Law, Peer, Population, Publisher, Scenario, Subscriber


def describe(law: Law) -> str:
    """For example `mean 12 s, uniform`."""
    spread = f" with cv {number(law.cv if law.cv is not None else 1.0)}" if law.law == "lognormal" else ""
    return f"mean {number(law.mean_s)} s, {law.law}{spread}"


def describe_peer(peer: Publisher | Subscriber) -> str:
    """The connection periods and the service times of a peer."""
    parts = ["always connected"]
    if peer.on is not None and peer.off is not None:
        parts = [f"ON {describe(peer.on)}", f"OFF {describe(peer.off)}"]
    if (trace := peer.connectivity) is not None:
        order = "ON and OFF periods shuffled" if trace.is_shuffled else "in recorded order"
        parts = [f"connected as in {trace.trace}, {order}"]
    if isinstance(peer, Subscriber) and peer.session_service is not None:
        parts.append(f"session service {describe(peer.session_service)}")
    if peer.service is not None:
        parts.append(f"service {describe(peer.service)}")
    return "; ".join(parts)


def describe_places(peer: Peer) -> str:
    """For example `at b3`, or `at b3, b7 and b9 in turn`."""
    *others, last = peer.places
    return f"at {', '.join(others)} and {last} in turn" if others else f"at {last}"


def describe_publisher(publisher: Publisher) -> str:
    """How often and when a publisher publishes, and how it is connected."""
    times = "" if publisher.arrivals is None else f" at the times of {publisher.arrivals.trace}"
    return f"{number(publisher.rate)}/s{times}; {describe_peer(publisher)}"


def network_laws(scenario: Scenario) -> Iterator[tuple[str, Law]]:
    """The laws that do not belong to a peer: subscription lifetimes, broker services, link delays."""
    spread = scenario.subscriptions.spread or scenario.subscriptions.wide
    if isinstance(spread, Population):
        yield "ON periods of populations", spread.on
        yield "OFF periods of populations", spread.off
    elif spread is not None:
        yield "lifetime of subscriptions", spread.lifetime
    if (sources := scenario.publications.sources) is not None:
        yield "ON periods of sources", sources.on
        yield "OFF periods of sources", sources.off
    if scenario.service.broker_in is not None:
        yield "service of brokers", scenario.service.broker_in
    if scenario.service.link is not None:
        yield "service of links", scenario.service.link
    for link in scenario.links:
        if link.delay is not None:
            yield f"delay {' – '.join(link.between)}", link.delay
