"""How many passwords a broker checks per second, and what a connected client notices meanwhile.

`python -m bench.logins [--seconds 5]`. Clients log in with names that are no users', as fast as they are refused, so
every CONNECT costs a whole check. A client that is connected sends a PINGREQ every 5 ms and waits for the answer. The
output has, without and with the logins, the round trips of that client (p50, p99, maximum), and the logins per second.
"""

import argparse
import socket
import statistics
import threading
import time
from pathlib import Path

import mqtt5

from bench.brokers import OURS, Broker, Ports, running, stop_on_sigterm
from bench.clients import HOST, connect
from bench.packets import PINGREQ
from brokerbed.broker.core.passwords import password_line

LOGINS = 20  # at a time
PAUSE_S = 0.005


def log_in(port: int, end_s: float, counts: list[int]) -> None:
    count = 0
    while time.monotonic() < end_s:
        with socket.create_connection((HOST, port)) as wire:
            wire.sendall(mqtt5.ConnectPacket("", username=f"nobody{count}", password=b"wrong").write())
            count += bool(wire.recv(16))
    counts.append(count)


def trips_ms(wire: socket.socket, end_s: float) -> list[float]:
    trips = []
    while time.monotonic() < end_s:
        began = time.perf_counter()
        wire.sendall(PINGREQ)
        assert wire.recv(2)
        trips.append(1000 * (time.perf_counter() - began))
        time.sleep(PAUSE_S)
    return sorted(trips)


def shown(trips: list[float]) -> str:
    at_99 = trips[int(len(trips) * 0.99)]
    return f"p50 {statistics.median(trips):.2f} ms, p99 {at_99:.2f} ms, max {trips[-1]:.2f} ms of {len(trips)} trips"


def with_passwords(ports: Ports, folder: Path) -> list[str]:
    (folder / "users").write_text(password_line("alice", "secret", b"0123456789abcdef") + "\n")
    (folder / "broker.toml").write_text('password_file = "users"\nallow_anonymous = true\n')
    return [*OURS.command(ports, folder), "--config", str(folder / "broker.toml")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    stop_on_sigterm()
    counts: list[int] = []
    with running(Broker("passwords", with_passwords, OURS.missing)) as broker, connect(broker.port, "honest") as client:
        print("without logins:", shown(trips_ms(client, time.monotonic() + seconds)))
        end_s = time.monotonic() + seconds
        threads = [threading.Thread(target=log_in, args=(broker.port, end_s, counts)) for _ in range(LOGINS)]
        for thread in threads:
            thread.start()
        print("with logins:", shown(trips_ms(client, end_s)))
        for thread in threads:
            thread.join()
    print(f"{sum(counts) / seconds:.0f} logins/s, {LOGINS} at a time")


if __name__ == "__main__":
    main()
