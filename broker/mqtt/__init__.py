"""Bytes to packets and back. Packets of all versions are the classes of the `mqtt5` package."""
