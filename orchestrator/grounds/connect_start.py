"""Reads who a client is from the first bytes of its connection, for proxies and relays that pass them on unchanged."""

CONNECT = 1  # the kind of an MQTT packet
MQTT_5 = 5


def client_id_of(start: bytes) -> str | None:
    """The id of the client whose connection began with these bytes; None unless they hold a CONNECT up to its id."""
    try:
        if start[0] >> 4 != CONNECT:
            return None
        _, at = _number(start, 1)
        at += 2 + int.from_bytes(start[at : at + 2], "big")  # the protocol's name
        version, at = start[at] & 0x7F, at + 4  # ... and flags and keep-alive
        if version == MQTT_5:
            size, at = _number(start, at)
            at += size
        end = at + 2 + (start[at] << 8 | start[at + 1])
    except IndexError:
        return None
    return None if end > len(start) else start[at + 2 : end].decode("utf-8", "replace")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Decodes a variable byte integer; returns its value and the position behind it."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
