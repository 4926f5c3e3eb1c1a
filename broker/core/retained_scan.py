"""Finds the retained messages for new subscriptions with wildcards, a slice at a time.

With hundreds of thousands of retained messages, matching and sending them takes seconds. Other clients are served
between two slices. A message that is retained after the subscription was made is not sent by the scan, because the
subscriber gets it as a live publication.
"""

from typing import TYPE_CHECKING

from brokerbed.broker.core import handle_subscribe
from brokerbed.broker.values import Entry, Message
from brokerbed.topics import is_wildcard, matches

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.session import Session
    from brokerbed.broker.core.subscriptions import Subscription

MATCHED_PER_SLICE = 2000  # retained messages compared with a filter in one slice, which takes about a millisecond
SENT_PER_SLICE = 200  # retained messages sent in one slice, which takes a few milliseconds


class RetainedScans:
    """Scans run one after the other, so that only one of them holds a list of all retained messages."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # subscriptions that wait for their scan, by session and filter, with the number of the newest message for them
        self._waiting: dict[tuple[Session, str], tuple[Subscription, int]] = {}
        self._current: tuple[Subscription, int] | None = None
        self._messages: list[Message] = []  # what the current scan has still to look at, oldest last

    def send_to(self, subscription: "Subscription", now_ns: int) -> None:
        """Send the retained messages that match a new subscription, at once if there are only a few messages."""
        broker, session = self._broker, subscription.session
        is_long = is_wildcard(subscription.filter) and len(broker.retained) > MATCHED_PER_SLICE
        if not is_long or session.link is not None:
            answers = Entry(subscription.filter, subscription.identity)
            for message in handle_subscribe.retained_for(broker, subscription.filter, now_ns):
                handle_subscribe.send_one_retained(broker, subscription, message, answers, now_ns)
            return
        self._waiting.pop((session, subscription.filter), None)  # a repeated SUBSCRIBE waits for one scan only
        self._waiting[session, subscription.filter] = subscription, broker.last_row_number
        if self._current is None:
            self._begin_next(now_ns)

    def _begin_next(self, now_ns: int) -> None:
        self._current = self._waiting.pop(next(iter(self._waiting)))
        self._messages = list(reversed(self._broker.retained.values()))
        self._broker.timers.next_turn(now_ns, _continue, self)

    def slice(self, now_ns: int) -> None:
        """Go on with the current scan."""
        assert self._current is not None
        subscription, newest = self._current
        messages, sent = self._messages, 0
        if subscription.session.subscriptions.get(subscription.filter) is not subscription:
            messages.clear()  # the subscription has ended, or was repeated
        for _ in range(min(MATCHED_PER_SLICE, len(messages))):
            message = messages.pop()
            if matches(subscription.filter, message.topic) and self._is_current(message, newest, now_ns):
                answers = Entry(subscription.filter, subscription.identity)
                handle_subscribe.send_one_retained(self._broker, subscription, message, answers, now_ns)
                sent += 1
                if sent == SENT_PER_SLICE:
                    break
        if messages:
            self._broker.timers.next_turn(now_ns, _continue, self)
            return
        self._current = None
        if self._waiting:
            self._begin_next(now_ns)

    def _is_current(self, message: Message, newest: int, now_ns: int) -> bool:
        is_expired = message.expires_at_ns is not None and message.expires_at_ns <= now_ns
        return message.retained_row <= newest and self._broker.retained.get(message.topic) is message and not is_expired


def _continue(broker: "Broker", scans: RetainedScans, now_ns: int) -> None:
    del broker
    scans.slice(now_ns)
