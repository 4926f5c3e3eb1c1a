"""The docker ground: one container per broker, on a network of the run; clients are in containers, too.

Brokers have no privileges: not root, a root file system that cannot be written, no capabilities, limits on memory and
processes. Links are cut in the child's network namespace by a short-lived helper that may do so (cutter.py). Where the
containers are, and how they get at files and at each other, is decided in sites.py.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from docker.types import EndpointConfig, Mount

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.log.record import CLIENTS
from brokerbed.orchestrator.grounds import image
from brokerbed.orchestrator.grounds.attached_container import AttachedContainer, raw_socket
from brokerbed.orchestrator.grounds.base import GroundError, Notify, Place
from brokerbed.orchestrator.grounds.clients import ClientProcess
from brokerbed.orchestrator.grounds.clocks import Reading, read_clock
from brokerbed.orchestrator.grounds.container import (
    METRICS_PORT,
    PORT,
    Address,
    DockerHost,
    DockerLink,
    Helper,
    Ports,
    PresentLinks,
)
from brokerbed.orchestrator.grounds.engine import LABEL, THREADS, Engine, EngineGoneError, clean, labels_of
from brokerbed.orchestrator.grounds.machine import CONTAINER_MB, check_memory
from brokerbed.orchestrator.grounds.network import (
    all_of,
    cancel_all,
    depth_first,
    has_quality,
    look_until,
    qualities,
    stderr_by_source,
)
from brokerbed.orchestrator.grounds.processes import StderrLines
from brokerbed.orchestrator.grounds.real import RealGround, Watcher, parts_of
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.grounds.settings import CONFIG, broker_files, clients_options, new_secret, write_files
from brokerbed.orchestrator.grounds.sites import UID, Site, Sites, fetch, put
from brokerbed.scenario import Scenario
from brokerbed.scenario.faults.registry import FAULTS
from brokerbed.scenario.workload import WORKLOAD

ANY = "0.0.0.0"  # noqa: S104  # of the container; only the run's own network, and who may use its published ports
SCRATCH = {"/tmp": "size=16m"}  # noqa: S108  # in the container
DATA, SCENARIO = "/data", "scenario.yaml"
WATCH_S = 1.0  # how often we check the states of the containers
MANY = 2  # if so many containers are dead, their engine may be shutting down,
ENGINE_LOOKS = 15  # for which we check so many times
BROKER_MEMORY, CLIENTS_MEMORY = "512m", "2g"


class DockerNetwork:
    def __init__(
        self,
        scenario: Scenario,
        place: Place,
        tag: str,
        engines: Sequence[Engine],
        is_near: bool,
        may_move: bool = False,
    ) -> None:
        """`may_move`: links may move, so brokers take instructions, and are regularly asked for their parents."""
        self._scenario = scenario
        self._place = place
        self._tag = tag
        self._labels = labels_of(place.raw.parent.name)
        self._sites = Sites(engines, self._labels, is_near)
        self._containers: list[tuple[Site, asyncio.Task[Container], str]] = []  # each with the folder that it writes to
        self._attached: list[AttachedContainer] = []
        self.relays: list[Relay] = []
        self._clients: list[ClientProcess] = []
        self._watching: list[asyncio.Task[None]] = []
        self._site_of: dict[str, Site] = {}
        self._link_secret = new_secret()
        self._may_move = may_move
        self.hosts: dict[str, DockerHost] = {}
        self.links = PresentLinks(self.hosts, self._pair)
        self.pairs: dict[tuple[str, str], DockerLink] = {}  # all links that there were, by child and parent

    async def start(self) -> None:
        await self._sites.open()
        scenario, sites = self._scenario, self._sites
        self._site_of = sites.distribute(depth_first(scenario))
        for name in scenario.tree.names:
            self.hosts[name] = self._host(name)
        for child, parent in scenario.tree.links:
            self.hosts[child].first_parent = parent
        room = asyncio.Semaphore(THREADS)

        async def begin(host: DockerHost) -> None:
            async with room:
                host.container = await self._broker(host)
                host.start()
                await host.done()

        await all_of(begin(host) for host in self.hosts.values())
        await look_until(
            self.hosts, lambda: all(link.is_connected for link in self.links.values()), "linked to their parents"
        )
        self._watching = [asyncio.create_task(self._watch(site)) for site in sites.all]

    def _host(self, name: str) -> DockerHost:
        site, sites = self._site_of[name], self._sites
        ip = site.address()
        metrics, ports = (ip, METRICS_PORT), Ports()
        if not sites.is_near:
            machine = sites.published_on(site)
            metrics = ports[f"{METRICS_PORT}/tcp"] = (machine, sites.port())
            if not sites.is_one_network:
                ports[f"{PORT}/tcp"] = (machine, sites.port())
        host = DockerHost(site.engine, name, ip, metrics, ports)
        host.takes_instructions = self._may_move
        host.address = self._address(host, sites.all[0])  # as the clients see it
        return host

    def _address(self, host: DockerHost, seen_from: Site) -> Address:
        if seen_from is self._site_of[host.name] or self._sites.is_one_network:
            return host.ip, PORT
        return host.ports[f"{PORT}/tcp"]

    def _pair(self, child: str, parent: str) -> DockerLink:
        """The link between two brokers, whether there was one before or not."""
        if (child, parent) not in self.pairs:
            site = self._site_of[child]
            address = self._address(self.hosts[parent], site)
            helpers = [Helper(self._site_of[name].engine, self._tag, self._labels) for name in (child, parent)]
            link = DockerLink(helpers[0], helpers[1], self.hosts[child], self.hosts[parent], address)
            self.pairs[child, parent] = link
            if has_quality(self._scenario, child, parent):
                self._add_relay(link, site)
        return self.pairs[child, parent]

    def _add_relay(self, link: DockerLink, site: Site) -> None:
        if not self._sites.is_near:
            raise GroundError(
                "links with a delay or a bandwidth go through the orchestrator, which containers of engines named"
                " with --engine cannot reach: leave out `links`, or --engine"
            )
        ends = link.child.name, link.parent.name
        link.relay = Relay(link.address, *qualities(self._scenario, *ends), host=site.gateway)
        self.relays.append(link.relay)

    async def _broker(self, host: DockerHost) -> Container:
        options = ["--name", host.name, "--host", ANY, "--port", str(PORT), "--metrics-port", str(METRICS_PORT)]
        options += ["--routing", self._scenario.routing, "--durability", self._scenario.durability]
        options += ["--data", DATA, "--config", f"{DATA}/{CONFIG}"]
        site, link = self._site_of[host.name], self.links.get(host.name)
        if link is not None and link.relay is not None:
            options += ["--parent", f"{site.gateway}:{await link.relay.open()}"]
        elif link is not None:
            options += ["--parent", ":".join(map(str, link.address))]
        address = (host.ip, PORT) if self._may_move else None
        files = broker_files(self._scenario, host.name, self._link_secret, address)
        return await self._create(
            site, ["brokerbed.broker.runtime.command", *options], (host.name, host.name), host.ip, files,
            mem_limit=BROKER_MEMORY, ports=host.ports, stdin_open=self._may_move,
        )  # fmt: skip

    async def _create(
        self, site: Site, command: list[str], name_and_folder: tuple[str, str], ip: str, files: Mapping[str, bytes],
        **more: Any,
    ) -> Container:  # fmt: skip
        name, folder = name_and_folder
        is_near, uid, gid = self._sites.is_near, UID, UID
        if is_near:
            place = self._folder(folder, files)
            more["volumes"] = {str(place): {"bind": DATA, "mode": "rw"}}
            if os.getuid():
                uid, gid = os.getuid(), os.getgid()
        else:
            more["mounts"] = [Mount(DATA, None, type="volume")]
        coroutine = site.engine.do(
            site.engine.client.containers.create,
            self._tag, command, name=f"brokerbed-{self._labels[LABEL]}-{name}", hostname=name, user=f"{uid}:{gid}",
            read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"], pids_limit=128, tmpfs=SCRATCH,
            labels=self._labels, network=site.network.name,
            networking_config={site.network.name: EndpointConfig("1.40", ipv4_address=ip)}, **more,
        )  # fmt: skip
        creating: asyncio.Task[Container] = asyncio.create_task(coroutine)
        self._containers.append((site, creating, folder))
        container = await asyncio.shield(creating)  # even if we are cancelled, the container must be removed later
        if not is_near:
            await put(site.engine, container, DATA, files)
        return container

    def _folder(self, name: str, files: Mapping[str, bytes]) -> Path:
        folder = self._place.raw / name
        write_files(folder, files)
        if os.getuid() == 0:
            os.chown(folder, UID, UID)
        return folder.absolute()

    async def clients(self, part: int, parts: int) -> ClientProcess:
        site = self._sites.all[0]
        options = clients_options(self._scenario, self._place, part, parts, DATA)
        scenario_file = self._place.scenario_file
        traces = scenario_file.parent.glob("*.csv")  # of all points of a sweep, as the process reads the whole file
        files = {SCENARIO: scenario_file.read_bytes()} | {trace.name: trace.read_bytes() for trace in traces}
        container = await self._create(
            site, ["brokerbed.clients.process", f"{DATA}/{SCENARIO}", *options], (f"{CLIENTS}.{part + 1}", CLIENTS),
            site.address(), files, mem_limit=CLIENTS_MEMORY, stdin_open=True,
        )  # fmt: skip
        engine = site.engine
        stream = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        sock = raw_socket(await engine.do(engine.client.api.attach_socket, container.id, stream))

        async def wait() -> int:
            return int((await engine.do(container.wait))["StatusCode"])

        attached, stderr = AttachedContainer(sock, wait), StderrLines()
        self._attached.append(attached)
        await attached.open()
        stderr.listen(attached.stderr)
        await engine.do(container.start)
        clients = ClientProcess(f"clients {part + 1} of {parts}", attached, stderr)
        self._clients.append(clients)
        return clients

    async def look(self) -> None:
        await all_of(host.look() for host in self.hosts.values())

    async def listen(self) -> None:
        await all_of(host.listen() for host in self.hosts.values())

    @property
    def stderr(self) -> dict[str, StderrLines]:
        return stderr_by_source(self.hosts, self._clients)

    def check(self) -> None:
        for watching in self._watching:  # these errors come first, because a missing engine explains the others
            if watching.done():
                watching.result()
        for host in self.hosts.values():
            host.check()
        for link in self.pairs.values():
            link.check()
        for clients in self._clients:
            clients.check()

    async def _watch(self, site: Site) -> None:
        """Raises GroundError if a broker died unexpectedly, or if an engine is gone."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._may_move:
                await all_of(host.look() for host in self.hosts.values() if self._site_of[host.name] is site)
            gone = await self._dead(site)
            for host in self.hosts.values():
                if host.container is not None and host.container.id in gone:
                    await host.died()

    async def clocks(self) -> dict[str, Reading]:
        """Reads the clock of one broker per engine on another machine; all brokers there share that clock."""
        readings = dict[str, Reading]()
        for site in self._sites.all:
            names = [name for name, place in self._site_of.items() if place is site]
            containers = [self.hosts[name].container for name in names if self.hosts[name].serving]
            if containers and not site.engine.is_near:
                reading = await site.engine.do(read_clock, containers[0])
                readings |= dict.fromkeys([*names, CLIENTS] if site is self._sites.all[0] else names, reading)
        return readings

    async def cause(self, error: GroundError) -> GroundError:
        """An engine that shuts down stops its containers first, but it answers on open connections for a while."""
        gone = error if isinstance(error, EngineGoneError) else await self._engine_gone()
        if gone is None:
            return error
        return GroundError(f"{gone}: when it is back, `brokerbed clean` removes what was left there")

    async def _engine_gone(self) -> GroundError | None:
        """The error of an engine that cannot be asked for dead containers; if there are many, it is asked again."""
        for site in self._sites.all:
            try:
                for _ in range(ENGINE_LOOKS):
                    if len(await self._dead(site)) < MANY:
                        break
                    await asyncio.sleep(WATCH_S)
            except GroundError as gone:
                return gone
        return None

    async def _dead(self, site: Site) -> set[str]:
        """The containers of this run that have exited."""
        filters = {"label": f"{LABEL}={self._labels[LABEL]}"}
        containers = await site.engine.do(site.engine.client.api.containers, all=True, filters=filters)
        return {container["Id"] for container in containers if container["State"] in ("exited", "dead")}

    async def close(self) -> None:
        await cancel_all(self._watching)
        for host in self.hosts.values():
            await host.end()
        for link in self.pairs.values():
            await link.end()
        for relay in self.relays:
            relay.close()
        for attached in self._attached:
            attached.end()
        await all_of(self._remove(*container) for container in self._containers)
        await self._sites.close()

    async def _remove(self, site: Site, creating: asyncio.Task[Container], folder: str) -> None:
        with suppress(GroundError):  # it could not be created, or its engine is gone
            container = await creating
            try:
                if not self._sites.is_near:
                    with suppress(GroundError):  # it may have exited already
                        await site.engine.do(container.kill)
                    await fetch(site.engine, container, DATA, self._place.raw / folder)
            finally:
                await site.engine.do(container.remove, force=True, v=True)


def _image_on(engines: list[Engine], notify: Notify) -> str:
    """Builds the image on one engine, preferably of this machine, and copies it to the others, which is faster."""
    with ExitStack() as opened:
        try:
            maker = opened.enter_context(closing(Engine()))
        except GroundError:
            maker = engines[0]
        tag = image.ensure(maker.client, notify)
        for engine in engines:
            image.copy(maker.client, engine.client, tag)
    return tag


def _refuse_other_packages(scenario: Scenario) -> None:
    """The clients in containers read the scenario, and brokers there run its routing algorithm."""
    foreign = [f"routing: {scenario.routing}"] if scenario.routing not in ALGORITHMS.built_in else []
    foreign += [f"faults: {fault.kind.name}" for fault in scenario.faults if fault.kind.name not in FAULTS.built_in]
    foreign += [name for name in scenario.parts if name not in WORKLOAD.built_in]
    if foreign:
        raise GroundError(
            f"{foreign[0]} is another package's, and the image for containers has none of these:"
            " choose another ground (--on local)"
        )


class DockerGround(RealGround):
    def __init__(self, engines: Sequence[str] = (), watcher: Watcher | None = None) -> None:
        """`engines` are the URLs of the engines; without any, it is the default engine of this machine."""
        super().__init__(watcher)
        self._urls = engines
        if engines:
            self.played.notes["engines"] = list(engines)

    def check(self, scenario: Scenario) -> None:
        """Raises GroundError if an engine does not answer, or if this machine has too little memory."""
        _refuse_other_packages(scenario)
        if scenario.placement is not None:
            self._refuse_moves(scenario)
        with ExitStack() as opened:
            self._open(opened)
        if not self._urls:
            check_memory(scenario, parts_of(scenario), CONTAINER_MB)

    def _open(self, opened: ExitStack) -> list[Engine]:
        urls: list[str | None] = [*self._urls] or [None]
        return [opened.enter_context(closing(Engine(url))) for url in urls]

    def _refuse_moves(self, scenario: Scenario) -> None:
        if self._urls or scenario.links:
            raise GroundError(
                "links between containers move only on the engine of this machine, and without a delay or a bandwidth:"
                f" leave out {'--engine' if self._urls else '`links`'}"
            )

    def prepare(self, notify: Notify) -> None:
        with ExitStack() as opened:
            self._image(self._open(opened), notify)

    def _image(self, engines: list[Engine], notify: Notify) -> str:
        return _image_on(engines, notify) if self._urls else image.ensure(engines[0].client, notify)

    def network(self, scenario: Scenario, place: Place, may_move: bool = False) -> DockerNetwork:
        """`may_move`: links may be told to move. With `placement`, brokers move them by themselves."""
        may_move = may_move or scenario.placement is not None
        if may_move:
            self._refuse_moves(scenario)
        with ExitStack() as opened:
            engines = self._open(opened)
            for engine in engines:
                clean(engine.client)
            tag = self._image(engines, lambda _: None)
            opened.pop_all()  # the network closes them
        return DockerNetwork(scenario, place, tag, engines, not self._urls and engines[0].is_near, may_move)
