"""The console script. A broker starts without the libraries of the other commands, which cost time and memory."""

import sys

INTERRUPTED = 130  # as shells report a program that Ctrl-C ended


def main() -> None:
    try:
        _main()
    except KeyboardInterrupt:  # while libraries are read
        sys.exit(INTERRUPTED)


def _main() -> None:
    if sys.argv[1:2] == ["broker"]:
        from broker.runtime.command import main as broker

        sys.exit(broker(sys.argv[2:]))
    from orchestrator.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
