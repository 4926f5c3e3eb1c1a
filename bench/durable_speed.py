"""The cost of durable messages, compared with Mosquitto, and the time that a broker needs to restart after a kill.

`python -m bench.durable_speed [--runs 5] [--seconds 2] [--only PART]...`, where PART is one of the two:

- `rates`: a publisher and a persistent session, 64-byte payloads, MQTT 3.1.1. brokerbed runs with each `--durability`
  and its message log on; `mosquitto+db` saves whenever something has changed, `mosquitto` has no persistence. A window
  of messages is under way: a message that was received, and acknowledged on both sides, makes room for another. In the
  last rows the session is offline while messages are queued, then connects and receives them. Every run starts a broker
  of its own, and the brokers take turns. The other rows have about half as many runs as the first, and shorter ones.
- `restart`: a million messages wait in ten sessions when the broker is killed (SIGKILL). The output has the seconds
  from the restart of its process until a CONNECT is answered and until the first message arrives, and its peak memory.
  The broker is killed again after each run. At the end one session receives all its messages, which are checked.

`process` survives the death of the process, `disk` and `mosquitto+db` also a failure of the machine, because those two
wait for the disk. Mosquitto writes its whole state each time, so the rate at which it queues falls as the queue grows;
the row with the number of queued messages shows how many it queued in the time of a run.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from socket import socket

from bench import packets
from bench.broker_speed import RUNS_MAX, SECONDS_MAX, WAITED_MAX, Results, collect, header, medians, row
from bench.brokers import (
    MOSQUITTO,
    MOSQUITTO_SAVING,
    OURS_DISK,
    OURS_MEMORY,
    OURS_PROCESS,
    Broker,
    only_present,
    running_on,
    stop_on_sigterm,
)
from bench.clients import LoadError, connect, drain, read_message, subscribe
from bench.load import cpu_s, waited_s
from bench.loop import Loop
from bench.workloads import PAYLOAD, Workload, topic

RATES, RESTART = PARTS = ("rates", "restart")
FIRST, OFFLINE = "durable-20", "durable-offline"
TITLES = {
    FIRST: "QoS 1, 20 under way, 1/s",
    "durable-100": "QoS 1, 100 under way, 1/s",
    "durable-qos2": "QoS 2, 20 under way, 1/s",
}
OTHERS_SHARE = 0.4  # of the time of the first row, so that the benchmark ends within minutes
PAIRS = {
    "process/mosq+db": (OURS_PROCESS.name, MOSQUITTO_SAVING.name),
    "process/mosq": (OURS_PROCESS.name, MOSQUITTO.name),
}
FLOORS = "targets for the first row: 10 compared with mosquitto+db, 0.4 compared with mosquitto"

SESSIONS, QUEUED = 10, 1_000_000  # 100 000 each, the default limit of a session queue
FILLING = Workload(subscribers=0, qos=1, topics=SESSIONS, batch=100, is_durable=True)
FILL_S_MAX = 120
RESTARTS = 3
RESTART_S_MAX = 60  # until the broker answers
RESTART_S_WANTED = 5
POLL_S = 0.005


def report_rates(brokers: list[Broker], runs: int, seconds: float) -> None:
    names = [broker.name for broker in brokers]
    others = [name for name in TITLES if name != FIRST]
    fewer = runs // 2 + 1
    results = collect([FIRST], brokers, runs, seconds)
    results |= collect(others, brokers, fewer, seconds * OTHERS_SHARE)
    results |= collect([OFFLINE], brokers, fewer, seconds)  # at most
    header("", names, PAIRS)
    for workload, title in TITLES.items():
        row(title, medians(results, workload, names, "deliveries_per_s"), PAIRS)
    row("QoS 1, offline: queued, 1/s", medians(results, OFFLINE, names, "deliveries_per_s"), PAIRS)
    row("  then delivered, 1/s", medians(results, OFFLINE, names, "drained_per_s"), PAIRS)
    row("  messages", medians(results, OFFLINE, names, "deliveries"), {})
    print(FLOORS)
    report_costs(results, names)


def report_costs(results: Results, names: list[str]) -> None:
    print("\nthe broker's CPU time per delivery, us")
    for workload, title in TITLES.items():
        row(title.removesuffix(", 1/s"), medians(results, workload, names, "cpu_us_per_delivery"), PAIRS)
    for workload in (*TITLES, OFFLINE):
        waited = medians(results, workload, names, "broker_waited")
        delayed = [f"{name} {part:.0%}" for name, part in waited.items() if part is not None and part > WAITED_MAX]
        if delayed:
            print(f"{workload}: something else kept this machine busy; waited for a core: {', '.join(delayed)}")


@dataclass(frozen=True)
class Restart:
    connected_s: float
    message_s: float
    cpu_s: float
    waited_s: float  # for a core
    peak_bytes: float


def report_restart() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-restart-") as name:
        folder = Path(name)
        fill(folder)
        stored = sum(file.stat().st_size for file in folder.glob("store*"))
        restarts = [restart(folder, is_last=run == RESTARTS - 1) for run in range(RESTARTS)]
    figures = [statistics.median(samples) for samples in zip(*map(astuple, restarts), strict=True)]
    connected, message, cpu, waited, peak = figures
    print(f"\n{QUEUED:,} messages in {SESSIONS} sessions, killed, median of {RESTARTS} restarts:")
    print(f"CONNACK after {connected:.2f} s, first message after {message:.2f} s (target: {RESTART_S_WANTED} s);")
    print(f"CPU time {cpu:.2f} s, waited for a core {waited:.2f} s;", end=" ")
    print(f"peak memory {peak / 1e6:.0f} MB, store {stored / 1e6:.0f} MB", flush=True)


def fill(folder: Path) -> None:
    """Runs a broker in which sessions are made and messages are queued for them, and kills it."""
    with running_on(OURS_PROCESS, folder) as broker, ExitStack() as stack:
        for number in range(SESSIONS):
            with connect_soon(broker.port, f"sub{number}") as client:
                subscribe(client, [topic(number)], qos=1)
                client.sendall(packets.DISCONNECT)
        loop = Loop(FILLING, broker.port, broker.port, stack)
        with loop.stalls_named():
            loop.run(FILL_S_MAX, QUEUED)
        if loop.sent < QUEUED:
            raise LoadError(f"only {loop.sent} messages could be queued in {FILL_S_MAX} s")


def restart(folder: Path, is_last: bool) -> Restart:
    start = time.perf_counter()
    with running_on(OURS_PROCESS, folder) as broker:
        with connect_soon(broker.port, "sub0") as client:
            connected_s = time.perf_counter() - start
            read_message(client, qos=1)
            message_s = time.perf_counter() - start
        restarted = Restart(connected_s, message_s, cpu_s([broker.pid]), waited_s([broker.pid]), peak_bytes(broker.pid))
        if is_last:
            drain(broker.port, "sub0", QUEUED // SESSIONS)
        return restarted


def connect_soon(port: int, client_id: str) -> socket:
    """Connects to a broker that may not listen yet."""
    end = time.monotonic() + RESTART_S_MAX
    while True:
        try:
            return connect(port, client_id, is_clean=False)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise LoadError(f"the broker does not listen after {RESTART_S_MAX} s") from None
            time.sleep(POLL_S)


def peak_bytes(pid: int) -> float:
    """The peak resident memory of a process."""
    _, _, after = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
    return float(after.split()[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.durable_speed", description="Messages that survive.")
    parser.add_argument("--runs", type=int, default=5, help="runs of the first row, with every broker")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a run of the first row measures")
    parser.add_argument("--only", action="append", default=[], choices=PARTS, help="only this part")
    options = parser.parse_args()
    if not (1 <= options.runs <= RUNS_MAX and 0 < options.seconds <= SECONDS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    brokers = only_present([OURS_PROCESS, OURS_DISK, OURS_MEMORY, MOSQUITTO_SAVING, MOSQUITTO])
    if brokers and RATES in (options.only or PARTS):
        print(f"median of {options.runs} runs of {options.seconds:g} s, payloads of {len(PAYLOAD)} bytes", flush=True)
        report_rates(brokers, options.runs, options.seconds)
    if OURS_PROCESS in brokers and RESTART in (options.only or PARTS):
        try:
            report_restart()
        except (LoadError, OSError) as error:
            print(f"restart failed: {error or type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
