"""Cuts a link in the network it runs in: `python -m brokerbed.orchestrator.grounds.cutter cut ADDRESS PORT up down`.

It runs in a short-lived container that joins the child's network and may change it, which brokers may not. `up` are
packets to this port of ADDRESS, `down` those from there. Packets are not dropped silently but rejected as unreachable:
a TCP that hears this keeps its connection and goes on trying at short intervals (RFC 6069), whereas silence makes it
wait twice as long each time, so that a repaired link would stay dead for many seconds.

`repair` removes the rules, and `settle ADDRESS PORT`, in the parent's network, only waits: both return when the
connections of the link carry data again, as far as this end has something to send. Finally it prints whether a
connection to ADDRESS can be made, which requires both directions.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RULES = {"up": ("OUTPUT", "-d", "--dport"), "down": ("INPUT", "-s", "--sport")}
REJECT = ("-j", "REJECT", "--reject-with", "icmp-host-unreachable")
CONNECT_S_MAX = 0.3
SETTLE_S_MAX = 5.0  # a TCP that knows that its packets are rejected retries within two seconds
SETTLE_POLL_S = 0.02
ESTABLISHED = "01"
Sockets = dict[str, tuple[int, int]]  # by inode: unacknowledged bytes, retransmissions


def main(verb: str, address: str, port: str, *ways: str) -> int:
    for way in ways:
        chain, which, its_port = RULES[way]
        change = "-A" if verb == "cut" else "-D"
        done = subprocess.run(
            ["iptables", "-w", change, chain, which, address, "-p", "tcp", its_port, port, *REJECT],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(" ".join(done.stderr.split()), file=sys.stderr)
            return 1
    if verb != "cut":
        wait_until_moving(lambda: sockets_to(address, int(port), Path("/proc/net/tcp").read_text(encoding="ascii")))
    if verb != "settle":
        print("open" if _connects(address, int(port)) else "shut")
    return 0


def sockets_to(address: str, port: int, table: str) -> Sockets:
    """The connections to this address with this port at one end, from the table of the kernel."""
    host = socket.inet_aton(address)[::-1].hex().upper()  # the format of little-endian machines
    sockets: Sockets = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        local_port, (remote, remote_port) = fields[1].split(":")[1], fields[2].split(":")
        if remote == host and fields[3] == ESTABLISHED and f"{port:04X}" in (local_port, remote_port):
            sockets[fields[9]] = int(fields[4].split(":")[0], 16), int(fields[6], 16)
    return sockets


def wait_until_moving(look: Callable[[], Sockets]) -> bool:
    """Waits until each socket has nothing to send or its data is acknowledged. False if that took too long."""
    end_s, before = time.monotonic() + SETTLE_S_MAX, look()
    waiting = {connection for connection, (unacknowledged, _) in before.items() if unacknowledged}
    while waiting and time.monotonic() < end_s:
        time.sleep(SETTLE_POLL_S)
        now = look()
        for connection in sorted(waiting):
            unacknowledged, retransmissions = now.get(connection, (0, 0))
            if unacknowledged == 0 or (unacknowledged < before[connection][0] and retransmissions == 0):
                waiting.discard(connection)
            before[connection] = unacknowledged, retransmissions
    return not waiting


def _connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), CONNECT_S_MAX).close()
    except ConnectionRefusedError:
        return True  # refused by the other end, whose broker does not run
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
