"""Decoding bytes into packets and encoding them. Packets of all MQTT versions are classes of the `mqtt5` package."""
