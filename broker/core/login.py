"""Who a client is: it is nobody, or a user with the right password.

A check takes long by design. So a driver may do it beside its event loop; the client waits meanwhile, and what it sends
after CONNECT is kept. Any other driver has it done at once.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import handle_connect
from brokerbed.broker.core.passwords import Users
from brokerbed.broker.errors import MqttError

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

Checked = Callable[[bool, int], None]  # to be called with the result and the time
CheckPassword = Callable[["Connection", Users, str, bytes, Checked], None]


def begin(broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, now_ns: int) -> None:
    """Have a client in that may come in, now or when its password has been checked."""
    admission = broker.config.admission(connection.listener)
    if packet.username is None:
        if not admission.allow_anonymous:
            raise MqttError("a user name and a password are needed", 0x87)
    elif admission.users is not None:
        _check(broker, connection, packet, admission.users, now_ns)
        return
    elif not admission.allow_anonymous:  # without a password file, a user name proves nothing
        raise MqttError("nobody can connect: there is no password file", 0x87)
    handle_connect.logged_in(broker, connection, packet, now_ns)


def _check(broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, users: Users, now_ns: int) -> None:
    name, password = packet.username, packet.password
    assert name is not None
    if password is None:
        raise _wrong()

    def checked(is_right: bool, now_ns: int) -> None:
        if connection.is_closing:
            return
        connection.is_waiting = False
        connection.last_ns = now_ns
        try:
            if is_right:
                handle_connect.logged_in(broker, connection, packet, now_ns)
            else:
                raise _wrong()
        except MqttError as error:
            broker.fail(connection, error, now_ns)
        else:
            broker.received(connection, b"", now_ns)  # what has come meanwhile

    if broker.check_password is not None:
        connection.is_waiting = True
        broker.check_password(connection, users, name, password, checked)
    elif users.accepts(name, password):
        handle_connect.logged_in(broker, connection, packet, now_ns)
    else:
        raise _wrong()


def _wrong() -> MqttError:
    return MqttError("user name or password are wrong", 0x86)
