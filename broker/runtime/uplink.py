"""Keeps the broker connected to its parent: it reconnects when the link breaks, and gives up only if there is a loop.

When the link has moved to another parent, that parent is dialled at once, at the address that the old one has told.

A problem that prevents the link is reported on stderr at once, and again from time to time while it lasts.
"""

import asyncio
import os
import ssl
import sys
from functools import partial

from brokerbed.broker.core.link import split_address
from brokerbed.broker.core.overlay import Overlay
from brokerbed.broker.runtime.addresses import written
from brokerbed.broker.runtime.security import Security
from brokerbed.broker.runtime.server import Server
from brokerbed.broker.runtime.wire import Wire

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.05, 2.0
CONNECT_S_MAX = 5.0
REPEAT_S = 60.0  # between two reports of the same problem
ACCEPTED_POLL_S = 0.05  # how often we check whether the parent has accepted the link


class LoopError(Exception):
    """The broker is among its own ancestors."""


class LinkReport:
    """Reports on stderr why there is no link to the parent, and when the link works again."""

    def __init__(self) -> None:
        self._reported_s: dict[str, float] = {}  # problem -> when it was last reported; empty while there is a link

    @property
    def has_problems(self) -> bool:
        return bool(self._reported_s)

    def problem(self, text: str, now_s: float) -> None:
        if text not in self._reported_s or now_s - self._reported_s[text] >= REPEAT_S:
            self._reported_s[text] = now_s
            self._say(f"{text}; trying again")

    def linked(self, parent: str) -> None:
        self._reported_s.clear()
        self._say(f"the parent at {parent} has accepted the link")

    @staticmethod
    def _say(text: str) -> None:
        print(f"brokerbed broker: {text}", file=sys.stderr, flush=True)


def parent_address(overlay: Overlay, configured: tuple[str, int], configured_name: str | None) -> tuple[str, int]:
    """Where the parent is reached.

    The parent to which the link has moved wins over the configured one, but if that is the same broker by its name, its
    configured address wins: an operator can say where it is now.
    """
    moved_to = overlay.moved_to
    if moved_to is None or moved_to.peer == configured_name:
        return configured
    return split_address(moved_to.address) or configured


async def keep(server: Server, configured: tuple[str, int], configured_name: str | None, security: Security) -> None:
    """Keep the link to the parent until cancelled; raises LoopError if the brokers form a loop.

    `configured`: the parent's address and name in the settings, until the link moves to another parent.
    """
    loop, overlay, report = asyncio.get_running_loop(), server.broker.overlay, LinkReport()
    backoff_s = BACKOFF_S_MIN
    while True:
        moved_to = overlay.moved_to
        address = parent_address(overlay, configured, configured_name)
        parent = written(*address)
        dialling = loop.create_connection(partial(Wire, server, parent), *address, ssl=security.parent_tls)
        problem = None
        try:
            _, wire = await asyncio.wait_for(dialling, CONNECT_S_MAX)
        except (OSError, TimeoutError) as error:
            # In an experiment the parent may be down because of an injected fault, of which the orchestrator knows.
            if not server.broker.config.is_testbed:
                problem = f"the parent at {parent} cannot be reached ({_cause(error)})"
        else:
            await _wait_until_lost(wire, server, report, parent)
            if overlay.loop_problem is not None:
                raise LoopError(overlay.loop_problem)
            if overlay.moved_to is not moved_to:  # the link has ended because it has moved
                backoff_s = BACKOFF_S_MIN
                continue
            if overlay.introduction.is_accepted:
                backoff_s = BACKOFF_S_MIN
            elif overlay.introduction.refusal is not None or not server.broker.config.is_testbed:
                unanswered = f"the parent at {parent} ended the connection before it answered"
                problem = overlay.introduction.refusal or unanswered
        if problem is not None:
            report.problem(problem, loop.time())
        await asyncio.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)


async def _wait_until_lost(wire: Wire, server: Server, report: LinkReport, parent: str) -> None:
    assert wire.gone is not None
    gone = asyncio.ensure_future(wire.gone.wait())
    try:
        while report.has_problems and not gone.done():
            if server.broker.overlay.introduction.is_accepted:
                report.linked(parent)
            await asyncio.wait([gone], timeout=ACCEPTED_POLL_S)
        await gone
    finally:
        gone.cancel()


def _cause(error: OSError | TimeoutError) -> str:
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no answer within {CONNECT_S_MAX:.0f} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
