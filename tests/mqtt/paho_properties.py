"""Properties of MQTT 5 packets for paho-mqtt and aiomqtt, which both take paho's untyped class."""

from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def properties(kind: int, **values: Any) -> Properties:
    """Properties of a CONNECT or PUBLISH, by paho's names."""
    made = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


def of_connect(**values: Any) -> Properties:
    return properties(PacketTypes.CONNECT, **values)


def of_publish(**values: Any) -> Properties:
    return properties(PacketTypes.PUBLISH, **values)
