"""How long peers that come and go take until their broker has accepted them, as a share of their ON periods."""

from typing import Any

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.crowd import Crowd
from brokerbed.orchestrator.simulator.loop import Loop
from tests.conftest import FromText

TEXT = """
scenario: 1
name: s
clock: {measure: 1000s}
topology: {tree: line, brokers: 1}
subscribers: [{id: s, broker: b0, topic: t, on: {mean: 10s, law: deterministic}, off: {mean: 10s, law: deterministic}}]
"""


class SlowClient:
    """The broker accepts it half a second after it has begun to connect."""

    received = acknowledged = is_accepted_changed = None
    is_connected = False

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._is_wanted = False

    def subscribe(self, topic_filter: str, qos: int) -> None:
        pass

    def connect(self) -> None:
        if not self._is_wanted:
            self._is_wanted = True
            self._loop.at(self._loop.now_ns + NS_PER_S // 2, self._accept, None)

    def disconnect(self) -> None:
        self._is_wanted = False
        self._change(False)

    def _accept(self, _: None) -> None:
        self._change(self._is_wanted)

    def _change(self, is_accepted: bool) -> None:
        is_changed, self.is_connected = is_accepted != self.is_connected, is_accepted
        if is_changed:
            assert self.is_accepted_changed is not None
            self.is_accepted_changed(is_accepted)

    def lose(self) -> None:
        """The broker dies, and accepts it again at once."""
        self._change(False)
        self._change(True)


def test_share_of_the_on_period_that_passes_before_a_peer_is_accepted(from_text: FromText) -> None:
    scenario, loop = from_text(TEXT).points[0], Loop()

    def new_peer(*_: object) -> Any:
        return SlowClient(loop)

    crowd = Crowd(scenario, loop, None, new_peer, new_peer)
    client: Any = crowd.peers[0].client
    crowd.begin()
    assert loop.run(500 * NS_PER_S, 10_000)
    shares = crowd.connecting_shares
    assert 20 <= len(shares) <= 26
    assert set(shares) == {0.05}
    if not client.is_connected:
        assert loop.run(511 * NS_PER_S, 10_000)
    count = len(shares)
    client.lose()  # amidst an ON period: this is no coming
    assert len(shares) == count
