"""Cuts a link in the network that it runs in: `python -m orchestrator.grounds.cutter cut ADDRESS PORT up down`.

It runs in a short-lived container that joins the child's network and may change it, which brokers may not. `up` are
packets to this port of ADDRESS, `down` those from there. It says whether a connection to ADDRESS can be made
afterwards, which takes both ways.
"""

import socket
import subprocess
import sys

RULES = {"up": ("OUTPUT", "-d", "--dport"), "down": ("INPUT", "-s", "--sport")}
CONNECT_S_MAX = 0.3


def main(verb: str, address: str, port: str, *ways: str) -> int:
    for way in ways:
        chain, which, its_port = RULES[way]
        change = "-A" if verb == "cut" else "-D"
        done = subprocess.run(
            ["iptables", "-w", change, chain, which, address, "-p", "tcp", its_port, port, "-j", "DROP"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(" ".join(done.stderr.split()), file=sys.stderr)
            return 1
    print("open" if _connects(address, int(port)) else "shut")
    return 0


def _connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), CONNECT_S_MAX).close()
    except ConnectionRefusedError:
        return True  # by the other end, whose broker is not there
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
