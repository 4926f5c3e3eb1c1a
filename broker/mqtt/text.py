"""Checks of an MQTT 5 packet that must precede the codec.

The codec panics on text that is not UTF-8, and it reads a Payload Format Indicator of 0 as none. This module finds both
by walking over the fields in the order in which the codec reads them. Where the packet is malformed in another way, the
walk ends: the codec gets no further either, and raises its own error.
"""

from collections.abc import Callable

from brokerbed.broker.errors import MalformedPacketError
from brokerbed.broker.mqtt import frames

_FIXED = {1: (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 2: (0x13, 0x21, 0x22, 0x23), 4: (0x02, 0x11, 0x18, 0x27)}
_SIZES = {identifier: size for size, identifiers in _FIXED.items() for identifier in identifiers}
_TEXTS = (0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F)
_BINARIES = (0x09, 0x16)
_NUMBER, _PAIR, _FORMAT = 0x0B, 0x26, 0x01
_BEFORE_PROPERTIES = {
    frames.CONNACK: 2, frames.SUBACK: 2, frames.UNSUBACK: 2, frames.DISCONNECT: 1, frames.AUTH: 1,
}  # fmt: skip  # packet type -> bytes before its properties; acknowledgements of a PUBLISH have 3
WILL, USER_NAME = 0x04, 0x80  # connect flags


class _EndError(Exception):
    """The packet ends or is malformed at the current position."""


def check(frame: bytes) -> None:
    """Raise MalformedPacketError if any text in the packet is not UTF-8."""
    if frame.isascii():
        return
    try:
        _Walk(frame).packet()
    except _EndError:
        return


def format_at(frame: bytes) -> int:
    """The position of the Payload Format Indicator's value in a PUBLISH or in the will of a CONNECT; 0 if none."""
    walk = _Walk(frame)
    try:
        walk.packet()
    except (_EndError, MalformedPacketError):
        return 0
    return walk.format_at


class _Walk:
    """Walks over the fields of one packet, and notes where its Payload Format Indicator is."""

    def __init__(self, frame: bytes) -> None:
        self._data = frame
        self._at = 1
        self.format_at = 0

    def packet(self) -> None:
        self._number()
        kind, qos = self._data[0] >> 4, self._data[0] >> 1 & 3
        if kind == frames.CONNECT:
            self._connect()
        elif kind == frames.PUBLISH:
            self._text()
            self._skip(2 if qos else 0)
            self._properties()
        elif kind in (frames.SUBSCRIBE, frames.UNSUBSCRIBE):
            self._skip(2)
            self._properties()
            while self._at < len(self._data):
                self._text()
                self._skip(1 if kind == frames.SUBSCRIBE else 0)
        else:
            self._skip(_BEFORE_PROPERTIES.get(kind, 3))
            self._properties()

    def _connect(self) -> None:
        self._text()
        self._skip(1)
        flags = self._byte()
        self._skip(2)
        self._properties()
        self._text()
        if flags & WILL:
            self._properties()
            self._text()
            self._binary()
        if flags & USER_NAME:
            self._text()

    def _properties(self) -> None:
        end = self._number() + self._at
        while self._at < min(end, len(self._data)):
            identifier = self._byte()
            if identifier == _FORMAT:
                self.format_at = self._at
            if identifier in _SIZES:
                self._skip(_SIZES[identifier])
            else:
                self._variable(identifier)()

    def _variable(self, identifier: int) -> Callable[[], object]:
        if identifier in _TEXTS:
            return self._text
        if identifier in _BINARIES:
            return self._binary
        if identifier == _NUMBER:
            return self._number
        if identifier == _PAIR:
            return self._pair
        raise _EndError

    def _pair(self) -> None:
        self._text()
        self._text()

    def _text(self) -> None:
        try:
            self._binary().decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedPacketError("text that is not UTF-8") from None

    def _binary(self) -> bytes:
        size = self._byte() << 8 | self._byte()
        self._skip(size)
        return self._data[self._at - size : self._at]

    def _byte(self) -> int:
        self._skip(1)
        return self._data[self._at - 1]

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise _EndError

    def _number(self) -> int:
        value = shift = 0
        for _ in range(frames.LENGTH_BYTES_MAX):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise _EndError
