"""The brokers under test: the command that starts each, and a child process that runs it on a free loopback port.

A broker keeps its files in a folder that is removed with it. Only processes that were started here are ended.
"""

import getpass
import http.client
import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from bench import packets
from bench.clients import HOST
from bench.load import ROOT
from bench.workloads import WINDOW_MESSAGES, Workload

START_S_MAX = 15  # a Python broker on a busy machine needs a second or two
STOP_S_MAX = 10  # after that it is killed
POLL_S = 0.02
STARTS_MAX = 3  # another program may take the free port first
ERROR_CHARACTERS_MAX = 500  # of a broker's output before it died


class BrokerError(Exception):
    """A broker did not start."""


@dataclass(frozen=True)
class Ports:
    mqtt: int
    metrics: int | None = None  # brokerbed only
    parent: int | None = None  # of the parent in a tree; brokerbed and Mosquitto only


@dataclass(frozen=True)
class Broker:
    """`command` writes the broker's configuration into the folder; `missing` says why the broker cannot run here.

    `supports` says whether the broker has what a workload needs.
    """

    name: str
    command: Callable[[Ports, Path], list[str]]
    missing: Callable[[], str | None]
    supports: Callable[[Workload], bool] = lambda _: True
    has_metrics: bool = False


@dataclass(frozen=True)
class Running:
    broker: Broker
    pid: int
    port: int


def _ours(ports: Ports, folder: Path, durability: str = "process") -> list[str]:
    """The command of brokerbed. With --data its message log is on."""
    command = [str(Path(sys.prefix) / "bin" / "brokerbed"), "broker", "--port", str(ports.mqtt), "--data", str(folder)]
    if ports.metrics:
        command += ["--metrics-port", str(ports.metrics)]
    if ports.parent:
        command += ["--parent", f"{HOST}:{ports.parent}"]
    command += ["--durability", durability]
    return [*command, "--name", f"port{ports.mqtt}"]


def _ours_configured(
    ports: Ports, folder: Path, configuration: str, durability: str = "process", routing: str = "identity"
) -> list[str]:
    file = folder / "broker.toml"
    file.write_text(configuration)
    return [*_ours(ports, folder, durability), "--routing", routing, "--config", str(file)]


def _ours_missing() -> str | None:
    command = Path(sys.prefix) / "bin" / "brokerbed"
    if not command.exists():
        return f"{command} is not installed (make setup)"
    help_text = subprocess.run([command, "broker", "--help"], capture_output=True, timeout=START_S_MAX, check=False)
    return "`brokerbed broker --help` fails" if help_text.returncode else None


def _path(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def _not_found(program: str) -> str | None:
    return None if _path(program) else f"{program} is not on the PATH (Debian: apt-get install {program})"


def _mosquitto(ports: Ports, folder: Path, persistence: str = "persistence false\n", bridge_qos: int = 0) -> list[str]:
    """Nothing is logged, nothing is stored without `persistence`, and no limit is below the window of the workloads."""
    configuration = folder / "mosquitto.conf"
    configuration.write_text(
        f"listener {ports.mqtt} {HOST}\nallow_anonymous true\n{persistence}log_type none\n"
        f"max_queued_messages 0\nmax_inflight_messages {WINDOW_MESSAGES}\nset_tcp_nodelay true\n"
        + _bridge(ports, bridge_qos)
    )
    return [_path("mosquitto") or "mosquitto", "-c", str(configuration)]


def _mosquitto_saving(ports: Ports, folder: Path) -> list[str]:
    """Saves as soon as something has changed. The user is named because root would become a user without access."""
    saving = "persistence true\nautosave_on_changes true\nautosave_interval 1\n"
    return _mosquitto(ports, folder, f"{saving}persistence_location {folder}/\nuser {getpass.getuser()}\n")


def _bridge(ports: Ports, qos: int) -> str:
    """Bridges all topics in both directions. In MQTT 5 a bridge sets No Local, so no message comes back."""
    if not ports.parent:
        return ""
    return (
        f"connection port{ports.mqtt}\naddress {HOST}:{ports.parent}\ntopic # both {qos}\n"
        f"bridge_protocol_version mqttv50\ncleansession {'false' if qos else 'true'}\nnotifications false\n"
        "bridge_attempt_unsubscribe false\ntry_private false\n"
    )


def _nats(ports: Ports, folder: Path) -> list[str]:
    """MQTT needs JetStream, which stores messages of QoS 1 in files. The port for NATS's own clients is unused."""
    configuration = folder / "nats.conf"
    configuration.write_text(
        f'server_name: bench\nhost: {HOST}\nport: -1\njetstream {{ store_dir: "{folder}" }}\n'
        f"mqtt {{ host: {HOST}, port: {ports.mqtt}, max_ack_pending: {WINDOW_MESSAGES} }}\n"
    )
    return [_path("nats-server") or "nats-server", "-c", str(configuration)]


def _nats_supports(workload: Workload) -> bool:
    return workload.level == packets.LEVEL_311 and workload.qos < 2 and not workload.is_shared


def _amqtt(ports: Ports, folder: Path) -> list[str]:
    configuration = folder / "amqtt.yaml"
    configuration.write_text(
        f"listeners:\n  default:\n    type: tcp\n    bind: {HOST}:{ports.mqtt}\n"
        "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
    )
    return [str(Path(sys.prefix) / "bin" / "amqtt"), "-c", str(configuration)]


def _amqtt_missing() -> str | None:
    if importlib.util.find_spec("amqtt") and (Path(sys.prefix) / "bin" / "amqtt").exists():
        return None
    return f"amqtt is not installed in {sys.prefix} (pip install amqtt)"


def _relay(ports: Ports, _: Path) -> list[str]:
    return [sys.executable, "-m", "bench.relay", "--port", str(ports.mqtt)]


def _relay_supports(workload: Workload) -> bool:
    """The relay knows neither topics nor handshakes of QoS 2."""
    is_one_stream = workload.groups == 1 and not workload.is_shared and not workload.has_exact_filters
    return is_one_stream and workload.qos < 2


OURS = Broker("brokerbed", _ours, _ours_missing, has_metrics=True)
OURS_PROCESS, OURS_DISK, OURS_MEMORY = (
    Broker(durability, partial(_ours, durability=durability), _ours_missing)
    for durability in ("process", "disk", "memory")
)
STILL, PLACING = (  # under a routing algorithm under which links can move
    Broker(name, partial(_ours_configured, configuration=placement, routing="peer"), _ours_missing)
    for name, placement in (("still", ""), ("placement", "[placement]\nperiod_s = 60\ngain = 0.99\n"))
)
MOSQUITTO = Broker("mosquitto", _mosquitto, partial(_not_found, "mosquitto"))
MOSQUITTO_QOS2 = Broker("mosquitto", partial(_mosquitto, bridge_qos=2), partial(_not_found, "mosquitto"))
MOSQUITTO_SAVING = Broker("mosquitto+db", _mosquitto_saving, partial(_not_found, "mosquitto"))
NATS = Broker("nats", _nats, partial(_not_found, "nats-server"), _nats_supports)
AMQTT = Broker("amqtt", _amqtt, _amqtt_missing, lambda workload: workload.level == packets.LEVEL_311)
RELAY = Broker("relay", _relay, lambda: None, _relay_supports)


def configured(durability: str, configuration: str) -> Broker:
    """brokerbed with settings of its own."""
    command = partial(_ours_configured, durability=durability, configuration=configuration)
    return Broker(durability, command, _ours_missing)


@contextmanager
def running(broker: Broker, metrics: bool = False, parent: int | None = None) -> Iterator[Running]:
    """Runs a broker that answers (its link to a parent may not be up yet), and removes its process and folder."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{broker.name}-") as name:
        process, ports = _start(broker, Path(name), metrics and broker.has_metrics, parent)
        try:
            if ports.metrics:
                _scrape(ports.metrics)
            yield Running(broker, process.pid, ports.mqtt)
        finally:
            _stop(process)


@contextmanager
def running_on(broker: Broker, folder: Path) -> Iterator[Running]:
    """Starts the broker on the data that an earlier life left in the folder, and kills it at the end."""
    ports = Ports(*_free_ports(1))
    process = _launch(broker, ports, folder, folder / "stderr")
    try:
        yield Running(broker, process.pid, ports.mqtt)
    finally:
        process.kill()
        process.wait()


def only_present(brokers: list[Broker]) -> list[Broker]:
    """The brokers that can run here; prints a line for every other."""
    reasons = {broker.name: broker.missing() for broker in brokers}
    for name, reason in reasons.items():
        if reason:
            print(f"{name} is left out: {reason}")
    return [broker for broker in brokers if not reasons[broker.name]]


def stop_on_sigterm() -> None:
    """Makes a benchmark that gets SIGTERM end its broker as well."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _start(broker: Broker, folder: Path, metrics: bool, parent: int | None) -> tuple[subprocess.Popen[bytes], Ports]:
    output_file = folder / "stderr"
    for _ in range(STARTS_MAX):
        mqtt, spare = _free_ports(2)
        ports = Ports(mqtt, spare if metrics else None, parent)
        data = folder / str(ports.mqtt)
        data.mkdir()
        process = _launch(broker, ports, data, output_file)
        try:
            if _answers(process, ports.mqtt):
                return process, ports
        except BaseException:
            _stop(process)
            raise
        _stop(process)
    last_output = output_file.read_text(errors="replace").strip()[-ERROR_CHARACTERS_MAX:]
    raise BrokerError(f"{broker.name} did not start: {last_output or 'there was no output'}")


def _launch(broker: Broker, ports: Ports, data: Path, output_file: Path) -> subprocess.Popen[bytes]:
    with output_file.open("wb") as output:
        return subprocess.Popen(
            broker.command(ports, data), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether the broker answers a CONNECT in time."""
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.create_connection((HOST, port), timeout=START_S_MAX) as client:
                client.sendall(packets.connect("first"))
                return packets.read_packet(client)[0] >> 4 == packets.CONNACK
        except OSError:
            time.sleep(POLL_S)
    return False


def _scrape(port: int) -> None:
    """Reads the metrics once, as Prometheus would, because the memory that this takes is part of the broker's."""
    end = time.monotonic() + START_S_MAX
    while True:
        connection = http.client.HTTPConnection(HOST, port, timeout=START_S_MAX)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            answer.read()
        except OSError as error:
            if time.monotonic() > end:
                raise BrokerError(f"the metrics port does not answer: {error}") from None
            time.sleep(POLL_S)
        else:
            if answer.status != http.client.OK:
                raise BrokerError(f"the metrics port answers {answer.status} to GET /metrics")
            return
        finally:
            connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Free ports. They are held at the same time, so that they differ."""
    servers = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports: list[int] = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
