"""The console script. A broker starts without the libraries of the other commands, which cost time and memory."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["broker"]:
        from broker.runtime.command import main as broker

        sys.exit(broker(sys.argv[2:]))
    from orchestrator.cli import main as command_line

    command_line()
