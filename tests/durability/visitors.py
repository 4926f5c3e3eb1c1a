"""Subscribers whose sessions end now and then, in each of the ways in which MQTT lets a session end."""

import selectors
from enum import Enum

from tests.durability import packets
from tests.durability.brokers import BrokerProcess
from tests.durability.clients import Subscriber
from tests.durability.ledger import Kind, Ledger, Reader

EXPIRY_S = 2  # of a session that ends because nobody comes back to it


class Ending(Enum):
    CLEAN_START = "the client begins a new session"
    DISCONNECT = "the client sets the expiry interval to 0 when it disconnects"
    EXPIRY = "the client stays away for longer than the expiry interval"


class Visitor(Subscriber):
    def __init__(
        self,
        reader: Reader,
        level: int,
        broker: BrokerProcess,
        selector: selectors.BaseSelector,
        ledger: Ledger,
        ending: Ending,
    ) -> None:
        super().__init__(reader, level, broker, selector, ledger)
        assert level == packets.LEVEL_5 or ending is Ending.CLEAN_START, "3.1.1 knows no expiry interval"
        self._ending = ending
        self._ends_soon = False  # it says goodbye when it is connected again
        self._has_said_goodbye = False  # and waits until the broker closes the connection
        self._closed_at = 0.0
        if ending is Ending.EXPIRY:
            self.expiry_s = EXPIRY_S

    def end_session(self) -> None:
        """Ends its session, and begins another when it connects the next time."""
        self.is_wanted = True
        if self._ending is Ending.DISCONNECT:
            self._ends_soon = True
            if self.is_connected:
                self._say_goodbye()
                self._flush()
            return
        self._close()
        self._has_session = False
        if self._ending is Ending.CLEAN_START:
            self.is_clean = True
        else:
            self._retry_at = self._now + 1.5 * EXPIRY_S

    def _say_goodbye(self) -> None:
        """If the broker is killed now, it may not get to know: the session may be there afterwards."""
        self._send(packets.disconnect(self.level))
        self._ends_soon = self._has_session = False
        self._has_said_goodbye = True

    def _dial(self) -> None:
        if self._now - self._closed_at > self.expiry_s / 2:  # by the broker's clock it may be over
            self._has_session = False
        super()._dial()

    def _connected(self, is_present: bool, connack: bytes) -> None:
        self._seen_ids.clear()
        if self.is_clean:
            self.is_clean = False
            if is_present:
                self._note(Kind.ANSWER, "a session is present after a clean start")
            if self.level != packets.LEVEL_5:  # this session would end with the connection: the next one stays
                self._close()
                self._has_session = False
                return
        if self._ends_soon:
            self._say_goodbye()
            return
        if not is_present:
            self._ledger.session_began(self._reader)
        super()._connected(is_present, connack)

    def _ended(self) -> None:
        if self._has_said_goodbye:
            self._close()
        else:
            super()._ended()

    def _close(self) -> None:
        if self._socket is not None and not self._is_accepted and not self._has_session:
            self.is_clean = True  # the answer that is lost may have begun a session: so that it is known when one began
        super()._close()
        self._has_said_goodbye = False
        self._closed_at = self._now

    def _send(self, data: bytes) -> None:
        if not self._has_said_goodbye:  # nothing may follow a DISCONNECT
            super()._send(data)
