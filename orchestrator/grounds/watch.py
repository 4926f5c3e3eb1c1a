"""What a running broker reports about itself: its Prometheus metrics, which the orchestrator reads now and then."""

import asyncio
import re
from dataclasses import dataclass, field

ANSWER_S_MAX = 5.0
_LINE = re.compile(r"^(brokerbed_\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class BrokerState:
    asked_s: float  # when the broker was queried
    under_way: float = 0.0  # messages that it still has to process
    offline: float = 0.0  # those of them that wait for clients that are not connected
    linked: dict[str, bool] = field(default_factory=dict)  # whether links are connected, by peer
    parent: str | None = None  # its parent, to which its link may have moved
    lag_s: float = 0.0  # sum of the measured lateness of its event loop
    lag_samples: float = 0.0
    is_store_blocked: bool = False  # its store cannot be written, so it blocks its clients

    def is_linked(self, peer: str, since_s: float) -> bool:
        """Whether the broker has reported this link as connected after `since_s`."""
        return self.asked_s > since_s and self.linked.get(peer, False)


Sample = tuple[str, dict[str, str], float]  # a metric's name, labels and value


async def scrape(address: tuple[str, int]) -> list[Sample] | None:
    """The samples of our own metrics, or None if the broker does not answer."""
    try:
        text = await asyncio.wait_for(_get(*address), ANSWER_S_MAX)
    except (OSError, TimeoutError):
        return None
    return [(name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _LINE.findall(text)]


async def look(address: tuple[str, int]) -> BrokerState | None:
    """The state of a broker, or None if it does not answer."""
    asked_s = asyncio.get_running_loop().time()
    samples = await scrape(address)
    if samples is None:
        return None
    values: dict[str, float] = {}
    linked: dict[str, bool] = {}
    parent = None
    for name, labels, value in samples:
        if name == "brokerbed_link_connected":
            linked[labels["peer"]] = value > 0
        elif name == "brokerbed_link_upward":
            parent = labels["peer"] if value > 0 else parent
        else:
            values[name] = value
    return BrokerState(
        asked_s,
        values.get("brokerbed_messages_under_way", 0.0),
        values.get("brokerbed_offline_messages", 0.0),
        linked,
        parent,
        values.get("brokerbed_loop_lag_seconds_total", 0.0),
        values.get("brokerbed_loop_lag_samples_total", 0.0),
        values.get("brokerbed_store_blocked", 0.0) > 0,
    )


async def _get(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
        return (await reader.read(-1)).decode()
    finally:
        writer.close()
