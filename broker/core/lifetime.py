"""The lifetime of messages: when one dies in an emulated service, and how the exact end of its time travels.

Ordinary clients give a lifetime in whole seconds, the Message Expiry Interval, and so do brokers to one another. In a
testbed that is too coarse, because a second of wall time may be many seconds of model time. The testbed's own clients
therefore write the time at which the message dies into the payload, where the broker at which it enters reads it, and
brokers pass it on over links as a user property of fixed width. Such a time is one of the brokers' clocks, which agree.
"""

from brokerbed.broker.core.link import RESERVED
from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.values import NS_PER_S

EXPIRES = RESERVED + "expires"  # the user property with the time at which the message dies
DIGITS = 19  # of such a time in nanoseconds; as many as the largest 64-bit number has
MARK = b"@"  # begins that time in a payload
WORDS_BYTES_MAX = 300  # of the publisher's id, the number and the time at the beginning of a payload


def stage_end_ns(free_ns: int, now_ns: int, service_ns: int, expires_at_ns: int | None) -> tuple[int, int]:
    """When a message that arrives now leaves a first-come-first-served stage, and when the stage is free then.

    The stage is free from `free_ns` on. The message leaves it when its service ends, or dies there when its time is
    over: while it waits, it has taken no service time; in service, the next message is served from that moment on.
    """
    begins_ns = max(now_ns, free_ns)
    ends_ns = begins_ns + service_ns
    if expires_at_ns is None or expires_at_ns > ends_ns:
        return ends_ns, ends_ns
    if expires_at_ns > begins_ns:
        return expires_at_ns, expires_at_ns
    return max(now_ns, expires_at_ns), free_ns


def is_over(expires_at_ns: int | None, now_ns: int) -> bool:
    return expires_at_ns is not None and expires_at_ns <= now_ns


def interval_s(expires_at_ns: int, now_ns: int) -> int:
    """The Message Expiry Interval of a message that is sent now: rounded up, and never 0, as it still lives."""
    return max(1, -((now_ns - expires_at_ns) // NS_PER_S))


def payload_words(publisher: str, number: int, expires_at_ns: int | None) -> str:
    """What the payload of a testbed's client begins with."""
    words = f"{publisher} {number} "
    return words if expires_at_ns is None else f"{words}{MARK.decode()}{expires_at_ns:0{DIGITS}d} "


def in_payload(payload: bytes) -> int | None:
    """The time at which a message of a testbed's client dies; None if its payload has none."""
    words = payload[:WORDS_BYTES_MAX].split(b" ", 3)
    return _time(words[2][len(MARK) :]) if len(words) == 4 and words[2].startswith(MARK) else None


def property_value(expires_at_ns: int) -> str:
    return f"{expires_at_ns:0{DIGITS}d}"


def in_property(value: str) -> int:
    expires_at_ns = _time(value.encode())
    if expires_at_ns is None:
        raise ProtocolError("a lifetime of a message that no broker gives")
    return expires_at_ns


def _time(digits: bytes) -> int | None:
    return int(digits) if len(digits) == DIGITS and digits.isdigit() and int(digits) < 2**63 else None
