"""Interoperability and conformance of an MQTT 3.1.1 and MQTT 5 server, over real sockets.

BROKERBED_TEST_BROKER says which server: `brokerbed` (default) or `mosquitto`, the reference the tests were tried on.
"""
