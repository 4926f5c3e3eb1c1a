"""The web server of the live page: static files, a stream of events, and the requests of its buttons.

All requests except those for style sheet and script need the token of the run. The server listens on the loopback
interface by default. It answers no page of another origin, and no name that could lead here by DNS rebinding.
"""

import asyncio
import hmac
import json
import reprlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from brokerbed.broker.runtime.origins import host_of, is_fixed, is_own_page
from brokerbed.orchestrator.grounds.base import GroundError, Notify
from brokerbed.orchestrator.grounds.network import cancel_all
from brokerbed.orchestrator.grounds.real import RealRun
from brokerbed.orchestrator.live.feed import PERIOD_S, Feed, Predicted
from brokerbed.scenario.faults.contract import Target
from brokerbed.scenario.faults.registry import FAULTS
from brokerbed.scenario.faults.targets import BROKER, LINK, PEER
from brokerbed.scenario.layout import layout

PAGE = Path(__file__).parent / "page"
FILES = {"/": "index.html", "/live.css": "live.css", "/live.js": "live.js"}
REQUEST_BYTES_MAX = 4096
WIDTH, RADIUS_MAX = 960.0, 22.0  # the width of the drawing, and the radius of a broker, which is also a button
CLOSE_S = 1.0  # how long event streams may take to end with the run
TARGETS: dict[str, Target] = {"broker": BROKER, "link": LINK, "peer": PEER}  # what can be selected on the page
WRONG_HOST = "open this page by the address that was printed: other names are refused\n"
POLICY = "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"


class Live:
    """The live page of one run."""

    def __init__(self, run: RealRun, predicted: Predicted, host: str) -> None:
        self._run = run
        self._host = host.lower()  # by which it was to be served
        self._feed = Feed(run, predicted)
        self._token = secrets.token_urlsafe(16)
        self._state_changed = asyncio.Condition()
        self._is_over = False
        self.app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[self._guard])
        self.app.add_routes([
            *(web.get(path, self._file) for path in FILES),
            web.get("/tree", self._tree), web.get("/events", self._events),
            web.post("/strike", self._strike), web.post("/heal", self._heal),
        ])  # fmt: skip

    @property
    def token(self) -> str:
        return self._token

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        name = host_of(host)
        if name is None or not (is_fixed(name) or name == self._host):
            return web.Response(status=403, text=WRONG_HOST)
        if not is_own_page(request.headers.get("Origin"), host):
            return web.Response(status=403, text="this server is for its own page only\n")
        given = request.headers.get("X-Token") or request.query.get("token", "")
        if request.path not in ("/live.css", "/live.js") and not hmac.compare_digest(
            given.encode(errors="backslashreplace"), self._token.encode()
        ):
            return web.Response(
                status=403, text="the token of this run is missing or wrong: open the address that was printed\n"
            )
        try:
            answer: web.StreamResponse = await handler(request)
        except _MalformedError as error:
            answer = _refused(str(error), 400)
        if not answer.prepared:
            answer.headers["Content-Security-Policy"] = POLICY
            answer.headers["Referrer-Policy"] = "no-referrer"  # the token is in the address
        return answer

    async def _file(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE / FILES[request.path])

    async def _tree(self, _: web.Request) -> web.Response:
        scenario = self._run.scenario
        parents = dict.fromkeys(scenario.tree.names) | dict(scenario.tree.links)
        placed = layout(scenario.tree, WIDTH)
        peers = sorted({peer.id for peer in scenario.all_peers})
        return web.json_response({
            "scenario": scenario.name, "routing": scenario.routing, "seed": scenario.seed,
            "speedup": scenario.clock.speedup, "parents": parents, "peers": peers,
            "places": dict(zip(scenario.tree.names, placed.places, strict=True)), "size": [WIDTH, placed.height],
            "verbs": _verbs(),
            "radius": placed.radius(RADIUS_MAX), "widest_link": placed.widest_link, "has_names": placed.has_names,
        })  # fmt: skip

    async def _events(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await answer.prepare(request)
        with suppress(ConnectionError):
            while not self._is_over:
                if self._feed.state:
                    await answer.write(f"data: {json.dumps(self._feed.state)}\n\n".encode())
                async with self._state_changed:
                    await self._state_changed.wait()
            await answer.write(b"event: over\ndata: {}\n\n")
        return answer

    async def _strike(self, request: web.Request) -> web.Response:
        verb, target = _fault_in(await _json_object(request))
        if verb not in FAULTS:
            return _refused(f"there is no fault {verb}; there are {_all_verbs()}")
        try:
            number = self._run.faults.strike(verb, target)
        except ValueError as error:
            return _refused(str(error))
        if number is None:
            return _refused(f"there is nothing to {verb} now at {target}")
        return web.json_response({"number": number})

    async def _heal(self, request: web.Request) -> web.Response:
        number = (await _json_object(request)).get("number")
        if type(number) is not int:  # isinstance would accept a bool
            raise _MalformedError("number must be the whole number of a fault")
        if not self._run.faults.heal_one(number):
            return _refused(f"fault {reprlib.repr(number)} is not there, or is healed already")
        return web.json_response({"number": number})

    async def look(self) -> None:
        """Updates the data periodically until the task is cancelled."""
        while True:
            with suppress(GroundError):  # the run itself will report it
                await self._feed.look()
            async with self._state_changed:
                self._state_changed.notify_all()
            await asyncio.sleep(PERIOD_S)

    async def over(self) -> None:
        self._is_over = True
        async with self._state_changed:
            self._state_changed.notify_all()


class _MalformedError(Exception):
    """A request that the page itself never sends. The message says in one sentence what is wrong with it."""


async def _json_object(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise _MalformedError("the request's body must be JSON") from None
    if not isinstance(body, dict):
        raise _MalformedError("the request's body must be a JSON object")
    return body


def _fault_in(body: dict[str, Any]) -> tuple[str, object]:
    """The verb and the target of a fault, checked for their types only."""
    verb, target = body.get("verb"), body.get("target")
    if not isinstance(verb, str):
        raise _MalformedError(f"verb must be one of {_all_verbs()}")
    if verb in FAULTS:
        try:
            FAULTS[verb].target.parse_json(target)
        except ValueError as error:
            raise _MalformedError(str(error)) from None
    return verb, target


def _verbs() -> dict[str, list[str]]:
    """The faults that can strike each kind of target."""
    return {
        name: [kind.name for kind in FAULTS.all.values() if kind.target is target] for name, target in TARGETS.items()
    }


def _all_verbs() -> str:
    return ", ".join(verb for verbs in _verbs().values() for verb in verbs)


def _refused(why: str, status: int = 409) -> web.Response:
    return web.json_response({"error": why}, status=status)


@asynccontextmanager
async def live_page(run: RealRun, predicted: Predicted, host: str, port: int, notify: Notify) -> AsyncIterator[None]:
    """Serves the live page of a run. Raises GroundError if the address is not available."""
    live = Live(run, predicted, host)
    runner = web.AppRunner(live.app, access_log=None, shutdown_timeout=CLOSE_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise GroundError(
                f"the live page cannot be served on {host}:{port} ({error.strerror})", is_missing=True
            ) from None
        shown = f"[{host}]" if ":" in host else host
        notify(f"live page: http://{shown}:{runner.addresses[0][1]}/?token={live.token}")
        looking = asyncio.create_task(live.look())
        try:
            yield
        finally:
            await cancel_all([looking])
            await live.over()
    finally:
        await runner.cleanup()
