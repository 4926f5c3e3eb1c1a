"""SIGHUP: the files that say who may do what are read again. If one of them is wrong, everything stays as it is."""

import sys
from dataclasses import replace

from brokerbed.broker.core import new_rights
from brokerbed.broker.runtime.server import Server
from brokerbed.broker.runtime.setting_files import SettingsError
from brokerbed.broker.runtime.settings import Settings


def reload(wanted: Settings, server: Server) -> None:
    try:
        wanted.security.take(wanted.reread())
    except SettingsError as error:
        _say(f"{error}; the settings so far stay in force")
        return
    config = replace(server.broker.config, **wanted.security.broker)
    ended = new_rights.apply(server.broker, config, server.now_ns())
    server.flush()
    _say(f"passwords, access rules and certificates were read again; clients that have to log in again: {ended}")


def _say(text: str) -> None:
    print(f"brokerbed broker: {text}", file=sys.stderr, flush=True)
