"""The docker ground: one container per broker on a network of the run's own, clients in containers, too.

Brokers have no privileges: not root, a root file system that cannot be written, no capabilities, limits on memory and
processes. Links are cut in the child's network namespace by a short-lived helper that may do so (cutter.py). Where the
containers are, and how they get at files and at each other, is the matter of sites.py.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from docker.types import EndpointConfig, Mount

from brokerbed.broker.routing import registry as routing
from brokerbed.log.record import CLIENTS
from brokerbed.orchestrator.grounds import image
from brokerbed.orchestrator.grounds.attached import Attached, raw_socket
from brokerbed.orchestrator.grounds.base import GroundError, Place, Tell
from brokerbed.orchestrator.grounds.clients import ClientProcess
from brokerbed.orchestrator.grounds.clocks import Reading, read_clock
from brokerbed.orchestrator.grounds.container import METRICS_PORT, PORT, Address, DockerHost, DockerLink, Helper, Ports
from brokerbed.orchestrator.grounds.engine import LABEL, THREADS, Engine, clean, labels_of
from brokerbed.orchestrator.grounds.machine import CONTAINER_MB, check_memory
from brokerbed.orchestrator.grounds.network import all_of, end_all, has_quality, look_until, qualities, said_by
from brokerbed.orchestrator.grounds.processes import Said
from brokerbed.orchestrator.grounds.real import RealGround, Watcher, parts_of
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.grounds.settings import CONFIG, broker_files, clients_options, new_secret, write_files
from brokerbed.orchestrator.grounds.sites import UID, Site, Sites, fetch, put
from brokerbed.scenario import Scenario

ANY = "0.0.0.0"  # noqa: S104  # of the container; only the run's own network, and who may use its published ports
SCRATCH = {"/tmp": "size=16m"}  # noqa: S108  # in the container
DATA, SCENARIO = "/data", "scenario.yaml"
WATCH_S = 1.0  # between two looks at the containers' states
MANY = 2  # dead containers suggest that their engine is about to end,
ENGINE_LOOKS = 15  # which is looked for so often
BROKER_MEMORY, CLIENTS_MEMORY = "512m", "2g"


class DockerNetwork:
    def __init__(self, scenario: Scenario, place: Place, tag: str, engines: Sequence[Engine], is_near: bool) -> None:
        self._scenario = scenario
        self._place = place
        self._tag = tag
        self._labels = labels_of(place.raw.parent.name)
        self._sites = Sites(engines, self._labels, is_near)
        self._containers: list[tuple[Site, asyncio.Task[Container], str]] = []  # with the folder of what it writes
        self._attached: list[Attached] = []
        self.relays: list[Relay] = []
        self._clients: list[ClientProcess] = []
        self._watching: list[asyncio.Task[None]] = []
        self._site_of: dict[str, Site] = {}
        self._link_secret = new_secret()
        self.hosts: dict[str, DockerHost] = {}
        self.links: dict[str, DockerLink] = {}

    async def start(self) -> None:
        await self._sites.open()
        scenario, sites = self._scenario, self._sites
        self._site_of = sites.shared_out(_depth_first(scenario))
        for name in scenario.tree.names:
            self.hosts[name] = self._host(name)
        for child, parent in scenario.tree.links:
            await self._link(self.hosts[child], self.hosts[parent])
        room = asyncio.Semaphore(THREADS)

        async def begin(host: DockerHost) -> None:
            async with room:
                host.container = await self._broker(host)
                host.start()
                await host.done()

        await all_of(begin(host) for host in self.hosts.values())
        await look_until(
            self.hosts, lambda: all(it.is_connected for it in self.links.values()), "linked to their parents"
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
        host.address = self._address(host, sites.all[0])  # where the clients are
        return host

    def _address(self, host: DockerHost, seen_from: Site) -> Address:
        if seen_from is self._site_of[host.name] or self._sites.is_one_network:
            return host.ip, PORT
        return host.ports[f"{PORT}/tcp"]

    async def _link(self, child: DockerHost, parent: DockerHost) -> None:
        site = self._site_of[child.name]
        address = self._address(parent, site)
        helpers = [Helper(self._site_of[it.name].engine, self._tag, self._labels) for it in (child, parent)]
        link = self.links[child.name] = DockerLink(helpers[0], helpers[1], child, parent, address)
        if has_quality(self._scenario, child.name, parent.name):
            if not self._sites.is_near:
                raise GroundError(
                    "links with a delay or a bandwidth go through the orchestrator, which containers of engines named"
                    " with --engine cannot reach: leave out `links`, or --engine"
                )
            link.relay = Relay(address, *qualities(self._scenario, child.name, parent.name), host=site.gateway)
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
        files = broker_files(self._scenario, host.name, self._link_secret)
        return await self._create(
            site, ["brokerbed.broker.runtime.command", *options], (host.name, host.name), host.ip, files,
            mem_limit=BROKER_MEMORY, ports=host.ports,
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
        creating = site.engine.do(
            site.engine.client.containers.create,
            self._tag, command, name=f"brokerbed-{self._labels[LABEL]}-{name}", hostname=name, user=f"{uid}:{gid}",
            read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"], pids_limit=128, tmpfs=SCRATCH,
            labels=self._labels, network=site.network.name,
            networking_config={site.network.name: EndpointConfig("1.40", ipv4_address=ip)}, **more,
        )  # fmt: skip
        made: asyncio.Task[Container] = asyncio.create_task(creating)
        self._containers.append((site, made, folder))
        container = await asyncio.shield(made)  # also what nobody waits for any more must be removed
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
        files = {SCENARIO: self._place.scenario_file.read_bytes()}
        container = await self._create(
            site, ["brokerbed.clients.process", f"{DATA}/{SCENARIO}", *options], (f"{CLIENTS}.{part + 1}", CLIENTS),
            site.address(), files, mem_limit=CLIENTS_MEMORY, stdin_open=True,
        )  # fmt: skip
        engine = site.engine
        stream = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        sock = raw_socket(await engine.do(engine.client.api.attach_socket, container.id, stream))

        async def wait() -> int:
            return int((await engine.do(container.wait))["StatusCode"])

        attached, said = Attached(sock, wait), Said()
        self._attached.append(attached)
        await attached.open()
        said.listen(attached.stderr)
        await engine.do(container.start)
        clients = ClientProcess(f"clients {part + 1} of {parts}", attached, said)
        self._clients.append(clients)
        return clients

    async def look(self) -> None:
        await all_of(host.look() for host in self.hosts.values())

    async def listen(self) -> None:
        await all_of(host.listen() for host in self.hosts.values())

    @property
    def said(self) -> dict[str, Said]:
        return said_by(self.hosts, self._clients)

    def check(self) -> None:
        for watching in self._watching:  # first of all: an engine that is gone explains the rest
            if watching.done():
                watching.result()
        for host in self.hosts.values():
            host.check()
        for link in self.links.values():
            link.check()
        for clients in self._clients:
            clients.check()

    async def _watch(self, site: Site) -> None:
        """Brokers that died though nobody killed them; an engine that is gone."""
        while True:
            await asyncio.sleep(WATCH_S)
            gone = await self._dead(site)
            for host in self.hosts.values():
                if host.container is not None and host.container.id in gone:
                    await host.died()

    async def clocks(self) -> dict[str, Reading]:
        """One broker of each engine of another machine is asked; they all have that machine's clock."""
        found = dict[str, Reading]()
        for site in self._sites.all:
            names = [name for name, its in self._site_of.items() if its is site]
            containers = [self.hosts[name].container for name in names if self.hosts[name].serving]
            if containers and not site.engine.is_near:
                reading = await site.engine.do(read_clock, containers[0])
                found |= dict.fromkeys([*names, CLIENTS] if site is self._sites.all[0] else names, reading)
        return found

    async def cause(self, error: GroundError) -> GroundError:
        """An engine that is stopped ends its containers first, and they are missed before it is."""
        for site in self._sites.all:
            try:
                for _ in range(ENGINE_LOOKS):
                    if len(await self._dead(site)) < MANY:
                        break
                    await asyncio.sleep(WATCH_S)
            except GroundError as gone:
                return GroundError(f"{gone}: when it is back, `brokerbed clean` removes what was left there")
        return error

    async def _dead(self, site: Site) -> set[str]:
        """Containers of this run that do not run."""
        filters = {"label": f"{LABEL}={self._labels[LABEL]}"}
        found = await site.engine.do(site.engine.client.api.containers, all=True, filters=filters)
        return {it["Id"] for it in found if it["State"] in ("exited", "dead")}

    async def close(self) -> None:
        await end_all(self._watching)
        for host in self.hosts.values():
            await host.end()
        for link in self.links.values():
            await link.end()
        for relay in self.relays:
            relay.close()
        for attached in self._attached:
            attached.end()
        await all_of(self._remove(*it) for it in self._containers)
        await self._sites.close()

    async def _remove(self, site: Site, made: asyncio.Task[Container], folder: str) -> None:
        with suppress(GroundError):  # it could not be made, or its engine is gone
            container = await made
            try:
                if not self._sites.is_near:
                    with suppress(GroundError):  # it may be dead already
                        await site.engine.do(container.kill)
                    await fetch(site.engine, container, DATA, self._place.raw / folder)
            finally:
                await site.engine.do(container.remove, force=True, v=True)


def _depth_first(scenario: Scenario) -> list[str]:
    """So that brokers that are linked are neighbours."""
    children: dict[str | None, list[str]] = {}
    parents = dict(scenario.tree.links)
    for name in scenario.tree.names:
        children.setdefault(parents.get(name), []).append(name)
    found, left = list[str](), list(reversed(children[None]))
    while left:
        found.append(left.pop())
        left += reversed(children.get(found[-1], []))
    return found


def _image_on(engines: list[Engine], tell: Tell) -> str:
    """Made by the engine of this machine, if it has one, and copied: it takes minutes to make it."""
    with ExitStack() as opened:
        try:
            maker = opened.enter_context(closing(Engine()))
        except GroundError:
            maker = engines[0]
        tag = image.ensure(maker.client, tell)
        for engine in engines:
            image.copy(maker.client, engine.client, tag)
    return tag


class DockerGround(RealGround):
    def __init__(self, engines: Sequence[str] = (), watcher: Watcher | None = None) -> None:
        """`engines`: their URLs; without any, the usual one of this machine."""
        super().__init__(watcher)
        self._urls = engines
        if engines:
            self.played.notes["engines"] = list(engines)

    def check(self, scenario: Scenario) -> None:
        """Whether there are engines; whether this machine has the memory, if they are its own."""
        if scenario.routing not in routing.BUILT_IN:
            raise GroundError(
                f"routing: {scenario.routing} is another package's, and the image for containers has none of these:"
                " choose another ground (--on local)"
            )
        with ExitStack() as opened:
            self._open(opened)
        if not self._urls:
            check_memory(scenario, parts_of(scenario), CONTAINER_MB)

    def _open(self, opened: ExitStack) -> list[Engine]:
        urls: list[str | None] = [*self._urls] or [None]
        return [opened.enter_context(closing(Engine(url))) for url in urls]

    def prepare(self, tell: Tell) -> None:
        with ExitStack() as opened:
            self._image(self._open(opened), tell)

    def _image(self, engines: list[Engine], tell: Tell) -> str:
        return _image_on(engines, tell) if self._urls else image.ensure(engines[0].client, tell)

    def network(self, scenario: Scenario, place: Place) -> DockerNetwork:
        with ExitStack() as opened:
            engines = self._open(opened)
            for engine in engines:
                clean(engine.client)
            tag = self._image(engines, lambda _: None)
            opened.pop_all()  # the network closes them
        return DockerNetwork(scenario, place, tag, engines, not self._urls and engines[0].is_near)
