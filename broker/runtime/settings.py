"""Parses and checks the command-line options and the configuration file (TOML) of one broker."""

import argparse
import json
import random
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from brokerbed.broker.config import BrokerConfig, Demand
from brokerbed.broker.core.link import split_address
from brokerbed.broker.laws import LAWS, sampler
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.routing.registry import ALGORITHMS, DEFAULT
from brokerbed.broker.routing.strategy import ParameterError
from brokerbed.broker.runtime import security
from brokerbed.broker.runtime.placement_settings import PlacementError, placement_config
from brokerbed.broker.runtime.security import Security, read_security
from brokerbed.broker.runtime.setting_files import SettingsError, read_toml, truth
from brokerbed.broker.values import NS_PER_S

_NOT_LIMITS = (
    "name",
    "address",
    "incarnation",
    "parent_user",
    "parent_password",
    "parent_is_foreign",
    "placement",
    "link_secret",
    "routing",
    "routing_parameters",
    "id_token",
    "is_testbed",
    "service_in",
    "service_link",
    "service_per_copy",
    "session_service",
    "users",
    "access",
    "allow_anonymous",
    "listeners",
    "roaming",
)
LIMITS = {field.name: field for field in fields(BrokerConfig) if field.name not in _NOT_LIMITS}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # the names of brokers, with the same syntax as in scenarios
KEYS = (
    "address", *security.KEYS, "metrics_host", "testbed",
    "limits", "service", "parent", "routing_parameters", "placement", "roaming", "move_timeout_s",
)  # fmt: skip
MEMORY, PROCESS, DISK = DURABILITIES = ("memory", "process", "disk")
LIFE_FILE = "broker.json"


@dataclass(frozen=True)
class Settings:
    host: str
    metrics_host: str
    metrics_port: int | None
    data: Path | None
    durability: str
    parent: tuple[str, int] | None
    parent_name: str | None  # used until the parent tells its name; None: its address is used
    broker: BrokerConfig
    security: Security
    reread: Callable[[], Security]  # reads again what may change while the broker runs
    has_file: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    options = _Parser(
        prog="brokerbed broker",
        description="One MQTT broker (3.1.1 and 5).",
        epilog="Example: brokerbed broker --port 1883 --metrics-port 9100",
    )
    options.add_argument("--port", type=int, default=1883, metavar="N", help="TCP port (default %(default)s; 0: any)")
    options.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default %(default)s)")
    options.add_argument("--name", metavar="B", help="of this broker in the tree (default random, kept in --data)")
    options.add_argument("--parent", metavar="HOST:PORT", help="the broker above this one in the tree")
    options.add_argument(
        "--routing",
        type=_routing,
        default=DEFAULT,
        metavar="R",
        help=f"how subscriptions travel between brokers: {', '.join(ALGORITHMS.built_in)} (default %(default)s)",
    )
    options.add_argument("--config", type=Path, metavar="FILE", help="more settings, see docs/broker.md")
    options.add_argument("--data", type=Path, metavar="DIR", help="keep durable state and message log in this folder")
    options.add_argument(
        "--durability",
        choices=DURABILITIES,
        help="what survives: nothing, the death of the process (default with --data), or also that of the machine",
    )
    options.add_argument("--ws-port", type=int, metavar="N", help="also listen for WebSockets on this port")
    options.add_argument("--metrics-port", type=int, metavar="N", help="answer Prometheus on this port")
    return options


def settings(arguments: list[str]) -> Settings:
    options = parser().parse_args(arguments)
    given = _configuration(options)
    secured = read_security(options, given)
    durability = options.durability or (MEMORY if options.data is None else PROCESS)
    if durability != MEMORY and options.data is None:
        raise SettingsError(f"--durability {durability} needs --data DIR: the folder in which state survives")
    name, incarnation = _name_and_incarnation(options.data, options.name)
    _check_parent(options.config, given.get("parent", {}))
    config = BrokerConfig(
        name=name,
        incarnation=incarnation,
        address=_address(options.config, given.get("address", "")),
        parent_is_foreign=given.get("parent", {}).get("foreign", False),
        routing=options.routing,
        routing_parameters=_routing_parameters(options.config, options.routing, given.get("routing_parameters", {})),
        placement=_placement(options, given.get("placement"), f"{name} {incarnation}"),
        id_token=secrets.token_hex(16),
        is_testbed=truth(options.config, "testbed", given.get("testbed", False)),
        roaming=truth(options.config, "roaming", given.get("roaming", True)),
        **secured.broker,
        **_service(options.config, given.get("service", {}), f"{name} {incarnation}"),
        **_limits(options.config, _with_move_timeout(given)),
    )
    parent = _parent_address(options.parent) if options.parent else None
    return Settings(
        options.host,
        str(given.get("metrics_host", options.host)),
        options.metrics_port,
        options.data,
        durability,
        parent,
        given.get("parent", {}).get("name"),
        config,
        secured,
        lambda: read_security(options, _configuration(options)),
        options.config is not None,
    )


def _configuration(options: argparse.Namespace) -> dict[str, Any]:
    given = read_toml(options.config) if options.config else {}
    for key in given:
        if key not in KEYS:
            raise SettingsError(f"{options.config}: unknown key {key}; known are {', '.join(KEYS)}")
    return given


def _name_and_incarnation(folder: Path | None, name: str | None) -> tuple[str, str]:
    """The broker's name and incarnation. Both are kept in its data folder, if it has one."""
    if name is not None and not NAME.fullmatch(name):
        raise SettingsError(f"--name: a broker's name has up to 64 letters, digits, - and _, not {name!r}")
    if folder is None:
        return name or _random_name(), f"{time.time_ns() // 1_000_000:x}"
    file = folder / LIFE_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        kept = {"name": name or stored.get("name") or _random_name(), "starts": int(stored.get("starts", 0)) + 1}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        new.replace(file)
    except (ValueError, TypeError, AttributeError):
        raise SettingsError(f"{file}: not what a broker keeps there; remove it, or give another --data") from None
    return str(kept["name"]), str(kept["starts"])


def _random_name() -> str:
    return f"b-{secrets.token_hex(4)}"


def _check_parent(file: Path, given: dict[str, Any]) -> None:
    """Check what `security` does not read."""
    if not isinstance(given.get("foreign", False), bool):
        raise SettingsError(f"{file}: parent: foreign must be true or false, not {given['foreign']!r}")
    if not NAME.fullmatch(str(given.get("name", "parent"))):
        raise SettingsError(f"{file}: parent: name: a broker's name, not {given['name']!r}")


def _routing(name: str) -> str:
    try:
        return ALGORITHMS[name].name
    except KeyError:
        raise argparse.ArgumentTypeError(f"there is no {name}; there are {', '.join(ALGORITHMS.all)}") from None


def _routing_parameters(file: Path, routing: str, given: Any) -> dict[str, int]:
    if not isinstance(given, dict):
        raise SettingsError(f"{file}: routing_parameters: like {{threshold = 3}}, not {given}")
    try:
        return ALGORITHMS[routing].checked(given)
    except ParameterError as error:
        raise SettingsError(f"{file}: routing_parameters: {error}") from None


def _parent_address(text: str) -> tuple[str, int]:
    address = split_address(text)
    if address is None:
        raise SettingsError(f"--parent must be HOST:PORT, like 127.0.0.1:1883, not {text}")
    return address


def _address(file: Path, given: Any) -> str:
    """Where other brokers reach this one; empty if the configuration does not say so."""
    if given and split_address(str(given)) is None:
        raise SettingsError(f'{file}: address must be "HOST:PORT", like "10.0.0.7:1883", not {given}')
    return str(given)


def _placement(options: argparse.Namespace, given: Any, broker_id: str) -> PlacementConfig | None:
    if given is None:
        return None
    try:
        return placement_config(given, options.routing, broker_id)
    except PlacementError as error:
        raise SettingsError(f"{options.config}: placement: {error}") from None


def _limits(file: Path, given: dict[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        if key not in LIMITS:
            raise SettingsError(f"{file}: limits: unknown key {key}; known are {', '.join(LIMITS)}")
        if key == "queue_policy":
            if value not in ("drop-oldest", "reject"):
                raise SettingsError(f"{file}: limits: queue_policy must be drop-oldest or reject, not {value}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise SettingsError(f"{file}: limits: {key} must be a number that is not negative, not {value}")
    return given


def _with_move_timeout(given: dict[str, Any]) -> dict[str, Any]:
    """The limits. `move_timeout_s` may stand beside `roaming`, where one looks for it."""
    limits = given.get("limits", {})
    return {**limits, "move_timeout_s": given["move_timeout_s"]} if "move_timeout_s" in given else limits


def _service(file: Path, given: dict[str, Any], broker_id: str) -> dict[str, Any]:
    """The emulated service. Each stage has its own random stream, which differs in each incarnation of the broker."""
    seed = given.get("seed", 1)
    if isinstance(seed, bool) or not isinstance(seed, int | str):
        raise SettingsError(f"{file}: service: seed must be a whole number or text, not {seed}")

    def demand(stage: str, law: Any) -> Demand:
        return _demand(file, law, random.Random(f"{seed} {broker_id} {stage}"))  # noqa: S311  # not a secret

    return {
        "service_in": demand("broker_in", given["broker_in"]) if "broker_in" in given else None,
        "service_link": demand("link", given["link"]) if "link" in given else None,
        "service_per_copy": bool(given.get("per_copy", False)),
        "session_service": {
            client: demand(f"sessions/{client}", law) for client, law in given.get("sessions", {}).items()
        },
    }


def _demand(file: Path, law: Any, stream: random.Random) -> Demand:
    if not isinstance(law, dict) or not isinstance(law.get("mean_s"), int | float) or law["mean_s"] <= 0:
        raise SettingsError(f'{file}: service: a demand is like {{mean_s = 0.0625, law = "exponential"}}, not {law}')
    kind = law.get("law", "exponential")
    if kind not in LAWS:
        raise SettingsError(f"{file}: service: law must be one of {', '.join(LAWS)}, not {kind}")
    return sampler(kind, round(law["mean_s"] * NS_PER_S), stream, float(law.get("cv", 1.0)))
