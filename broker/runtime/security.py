"""Who may connect to a broker over which listener, and do what: the settings that are read again on SIGHUP."""

import argparse
import asyncio
import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerbed.broker.config import Admission
from brokerbed.broker.core.access import Access, AccessError, parse_access
from brokerbed.broker.core.link_proof import SECRET_BYTES_MIN
from brokerbed.broker.core.passwords import Users, parse_users
from brokerbed.broker.runtime.addresses import is_loopback
from brokerbed.broker.runtime.setting_files import SettingsError, read_text, truth

MQTT, WEBSOCKET = PROTOCOLS = ("mqtt", "websocket")  # also the names of the listeners of --port and --ws-port
RESERVED_NAMES = (*PROTOCOLS, "metrics")
_TLS_KEYS = ("tls_cert", "tls_key", "tls_client_ca")
COMMON_KEYS = (*_TLS_KEYS, "allow_anonymous", "password_file", "allowed_origins")  # of the broker and of a listener
KEYS = (*COMMON_KEYS, "access_file", "link_secret_file", "listener")
LISTENER_KEYS = ("name", "protocol", "host", "port", "links_only", *COMMON_KEYS)
PARENT_KEYS = {"name", "user", "password_file", "tls_ca", "tls_cert", "tls_key", "foreign"}
PORT_MAX = 65_535


@dataclass
class Listener:
    """Where a broker listens. `tls` and `allowed_origins` may be replaced while it does."""

    name: str
    protocol: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    allowed_origins: tuple[str, ...] | None

    @property
    def place(self) -> tuple[str, str, str, int, bool]:
        """What cannot change while the broker runs."""
        return self.name, self.protocol, self.host, self.port, self.tls is not None


@dataclass
class Security:
    listeners: dict[str, Listener]  # by name
    parent_tls: ssl.SSLContext | None
    broker: dict[str, Any] = field(repr=False)  # fields of BrokerConfig

    def take(self, new: "Security") -> None:
        """Use what was read anew, for connections that are made from now on. Nothing changes if that is an error."""
        if [it.place for it in self.listeners.values()] != [it.place for it in new.listeners.values()]:
            raise SettingsError("the configuration has other listeners now, which needs a restart")
        if _proves_links(self.broker) != _proves_links(new.broker):
            raise SettingsError("the configuration has another kind of proof for links now, which needs a restart")
        for name, listener in self.listeners.items():
            listener.tls, listener.allowed_origins = new.listeners[name].tls, new.listeners[name].allowed_origins
        self.parent_tls, self.broker = new.parent_tls, new.broker


def _proves_links(broker: dict[str, Any]) -> bool:
    return broker["link_secret"] is not None or any(it.links_only for it in broker["listeners"].values())


def read_security(options: argparse.Namespace, given: dict[str, Any]) -> Security:
    """`given`: the configuration file."""
    file: Path | None = options.config
    folder = file.parent if file is not None else Path()
    users, access = _users(folder, given), _access(folder, given)
    main = _common(file, folder, given, options.host, given, users, str(options.host))
    listeners = {MQTT: Listener(MQTT, MQTT, options.host, options.port, *main[1:])}
    if options.ws_port is not None:
        listeners[WEBSOCKET] = Listener(WEBSOCKET, WEBSOCKET, options.host, options.ws_port, *main[1:])
    admissions: dict[str, Admission] = {}
    for table in _tables(file, given.get("listener", [])):
        listener, admission = _listener(file, folder, table, options.host, given, users)
        if listener.name in listeners:
            raise SettingsError(f"{file}: listener: there are two called {listener.name}")
        listeners[listener.name], admissions[listener.name] = listener, admission
    parent = given.get("parent", {})
    user, password = _parent_login(file, folder, parent)
    return Security(
        listeners,
        _parent_tls(file, folder, parent),
        {
            "users": users,
            "access": access,
            "allow_anonymous": main[0].allow_anonymous,
            "listeners": admissions,
            "link_secret": _link_secret(file, folder, given.get("link_secret_file")),
            "parent_user": user,
            "parent_password": password,
        },
    )


def _users(folder: Path, given: dict[str, Any]) -> Users | None:
    if "password_file" not in given:
        return None
    text = read_text(folder, given["password_file"])
    try:
        return parse_users(text, secrets.token_bytes(32))
    except AccessError as error:
        raise SettingsError(f"{folder / given['password_file']}: {error}") from None


def _access(folder: Path, given: dict[str, Any]) -> Access | None:
    if "access_file" not in given:
        return None
    text = read_text(folder, given["access_file"])
    try:
        return parse_access(text)
    except AccessError as error:
        raise SettingsError(f"{folder / given['access_file']}: {error}") from None


def _tables(file: Path | None, given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        raise SettingsError(f"{file}: listener: each has a table of its own, which begins with [[listener]]")
    return given


def _listener(
    file: Path | None, folder: Path, table: dict[str, Any], host: str, given: dict[str, Any], users: Users | None
) -> tuple[Listener, Admission]:
    """One [[listener]]; what it does not say is as for the whole broker, except TLS."""
    name, protocol, port = table.get("name"), table.get("protocol", MQTT), table.get("port")
    if not isinstance(name, str) or not name.isidentifier() or name in RESERVED_NAMES:
        raise SettingsError(
            f"{file}: listener: name must be a word, and none of {', '.join(RESERVED_NAMES)}, not {name!r}"
        )
    for key in table:
        if key not in LISTENER_KEYS:
            raise SettingsError(f"{file}: listener {name}: unknown key {key}; known are {', '.join(LISTENER_KEYS)}")
    if protocol not in PROTOCOLS:
        raise SettingsError(f"{file}: listener {name}: protocol must be {MQTT} or {WEBSOCKET}, not {protocol}")
    if type(port) is not int or not 0 <= port <= PORT_MAX:
        raise SettingsError(f"{file}: listener {name}: port must be a whole number up to {PORT_MAX}, not {port}")
    links_only = truth(file, f"listener {name}: links_only", table.get("links_only", False))
    if links_only and (protocol != MQTT or "tls_client_ca" not in table):
        raise SettingsError(
            f"{file}: listener {name}: links_only needs tls_client_ca, which signs certificates of brokers"
        )
    host = str(table.get("host", host))
    own_users = _users(folder, table)
    defaults = {key: value for key, value in given.items() if key != "allow_anonymous" or own_users is None}
    admission, tls, origins = _common(file, folder, table, host, defaults, own_users or users, name, links_only)
    return Listener(name, protocol, host, port, tls, origins), admission


def _common(
    file: Path | None,
    folder: Path,
    given: dict[str, Any],
    host: str,
    defaults: dict[str, Any],
    users: Users | None,
    place: str,
    links_only: bool = False,
) -> tuple[Admission, ssl.SSLContext | None, tuple[str, ...] | None]:
    """The settings that the broker and each listener have: who may connect, TLS, and pages' origins."""
    wanted = given.get("allow_anonymous", defaults.get("allow_anonymous"))
    is_open = not links_only and _allows_anonymous(file, host, wanted, users is not None, place)
    origins = given.get("allowed_origins", defaults.get("allowed_origins"))
    if origins is not None and not (isinstance(origins, list) and all(isinstance(it, str) for it in origins)):
        raise SettingsError(f'{file}: allowed_origins must be a list like ["https://example.org"], not {origins}')
    allowed = None if origins is None else tuple(origin.lower().rstrip("/") for origin in origins)
    return Admission(is_open, users, links_only), _server_tls(file, folder, given), allowed


def _allows_anonymous(file: Path | None, host: str, wanted: Any, has_users: bool, place: str) -> bool:
    """By default, anonymous clients may connect only from this machine, and only if there is no password file."""
    if wanted is not None:
        return truth(file, "allow_anonymous", wanted)
    if has_users:
        return False
    if is_loopback(host):
        return True
    raise SettingsError(
        f"on {place} anybody could connect: give a password_file, or allow_anonymous = true, in --config FILE"
    )


def _server_tls(file: Path | None, folder: Path, given: dict[str, Any]) -> ssl.SSLContext | None:
    if not any(key in given for key in _TLS_KEYS):
        return None
    if "tls_cert" not in given or "tls_key" not in given:
        raise SettingsError(f"{file}: tls_cert and tls_key go together, and tls_client_ca goes with both")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could have us compute keys again and again
    try:
        _load_certificate(context, folder, given)
        if "tls_client_ca" in given:
            context.load_verify_locations(folder / str(given["tls_client_ca"]))
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{file}: the TLS certificate, key or CA cannot be used ({error})") from None
    return context


def _parent_tls(file: Path | None, folder: Path, given: dict[str, Any]) -> ssl.SSLContext | None:
    if ("tls_cert" in given) != ("tls_key" in given) or ("tls_cert" in given) > ("tls_ca" in given):
        raise SettingsError(f"{file}: parent: tls_cert and tls_key go together, and with tls_ca")
    if "tls_ca" not in given:
        return None
    try:
        context = ssl.create_default_context(cafile=folder / str(given["tls_ca"]))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if "tls_cert" in given:
            _load_certificate(context, folder, given)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{file}: parent: tls_ca, tls_cert or tls_key cannot be used ({error})") from None
    return context


def _load_certificate(context: ssl.SSLContext, folder: Path, given: dict[str, Any]) -> None:
    """A key that is encrypted is an error: nobody is there to be asked for its passphrase."""
    context.load_cert_chain(folder / str(given["tls_cert"]), folder / str(given["tls_key"]), password="")


def _parent_login(file: Path | None, folder: Path, given: Any) -> tuple[str | None, str | None]:
    """The user name and password with which the broker logs in at its parent."""
    if not isinstance(given, dict) or not set(given) <= PARENT_KEYS or ("password_file" in given) > ("user" in given):
        raise SettingsError(f'{file}: parent: like {{user = "leaf", password_file = "leaf.password"}}, not {given}')
    password = read_text(folder, given["password_file"]).strip("\r\n") if "password_file" in given else None
    return given.get("user"), password


def _link_secret(file: Path | None, folder: Path, name: str | None) -> bytes | None:
    """The secret that the brokers of a tree share and that nobody else knows."""
    if name is None:
        return None
    secret = read_text(folder, name).strip().encode()
    if len(secret) < SECRET_BYTES_MIN:
        raise SettingsError(f"{file}: link_secret_file: {name} must hold at least {SECRET_BYTES_MIN} characters")
    return secret


def certificate_name(transport: asyncio.BaseTransport) -> str | None:
    """The common name in the certificate that the peer has shown, which was verified; None if it need not show one."""
    certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
    names: list[str] = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else None
