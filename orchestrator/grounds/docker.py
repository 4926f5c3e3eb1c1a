"""The docker ground: one container per broker on a network of the run's own, clients in containers, too.

Brokers have no privileges: not root, a root file system that cannot be written, no capabilities, limits on memory and
processes. Links are cut in the child's network namespace by a short-lived helper that may do so (cutter.py).
"""

import asyncio
import os
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from docker.types import EndpointConfig, IPAMConfig, IPAMPool

from orchestrator.grounds import image, journal
from orchestrator.grounds.attached import Attached, raw_socket
from orchestrator.grounds.base import GroundError, Place
from orchestrator.grounds.clients import ClientProcess
from orchestrator.grounds.container import METRICS_PORT, PORT, DockerHost, DockerLink, Helper
from orchestrator.grounds.engine import LABEL, THREADS, Engine, clean
from orchestrator.grounds.network import all_of, has_quality, look_until, qualities, said_by
from orchestrator.grounds.processes import Said
from orchestrator.grounds.real import RealGround
from orchestrator.grounds.relay import Relay
from orchestrator.grounds.settings import broker_toml, clients_options
from orchestrator.scenario import Scenario

ANY = "0.0.0.0"  # noqa: S104  # of the container, which is on the run's own network only
SCRATCH = {"/tmp": "size=16m"}  # noqa: S108  # in the container
DATA, SCENARIO = "/data", "/scenario.yaml"
UID = 10001  # of what runs in containers, where the orchestrator is root
WATCH_S = 1.0  # between two looks at the containers' states
SUBNETS = [f"10.{second}.{third}.0/22" for second in (213, 214, 215) for third in range(0, 256, 4)]
BROKER_MEMORY, CLIENTS_MEMORY = "512m", "2g"


class DockerNetwork:
    def __init__(self, scenario: Scenario, place: Place, tag: str, engine: Engine) -> None:
        self._scenario = scenario
        self._place = place
        self._tag = tag
        self._engine = engine
        self._labels = {LABEL: f"{os.getpid()}-{journal.began(os.getpid())}", "brokerbed.run": place.raw.parent.name}
        self._network: Any = None
        self._addresses: list[str] = []
        self._containers: list[Container] = []
        self._attached: list[Attached] = []
        self._relays: list[Relay] = []
        self._clients: list[ClientProcess] = []
        self._watching: asyncio.Task[None] | None = None
        self.hosts: dict[str, DockerHost] = {}
        self.links: dict[str, DockerLink] = {}

    async def start(self) -> None:
        await self._make_network()
        scenario, helper = self._scenario, Helper(self._engine, self._tag, self._labels)
        for name in scenario.tree.names:
            self.hosts[name] = DockerHost(self._engine, name, self._addresses.pop())
        for child, parent in scenario.tree.links:
            await self._link(helper, self.hosts[child], self.hosts[parent])
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
        self._watching = asyncio.create_task(self._watch())

    async def _make_network(self) -> None:
        """With addresses of our own choice, so that a broker keeps its address when it starts anew."""
        create = self._engine.client.networks.create
        for subnet in SUBNETS:
            pool = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
            try:
                self._network = await self._engine.do(
                    create, f"brokerbed-{self._labels[LABEL]}-{subnet.split('/')[0]}",
                    driver="bridge", internal=True, ipam=pool, labels=self._labels,
                )  # fmt: skip
            except GroundError as error:
                if "overlap" in str(error):
                    continue
                raise
            first, *rest = [str(it) for it in IPv4Network(subnet).hosts()]
            self._gateway, self._addresses = first, rest[::-1]
            return
        raise GroundError("no network can be made: all addresses are taken (brokerbed clean, docker network prune)")

    async def _link(self, helper: Helper, child: DockerHost, parent: DockerHost) -> None:
        link = self.links[child.name] = DockerLink(helper, child, parent)
        if has_quality(self._scenario, child.name, parent.name):
            link.relay = Relay(parent.address, *qualities(self._scenario, child.name, parent.name), host=self._gateway)
            self._relays.append(link.relay)

    async def _broker(self, host: DockerHost) -> Container:
        folder = self._folder(host.name)
        (folder / "broker.toml").write_text(broker_toml(self._scenario, host.name), encoding="utf-8")
        options = ["--name", host.name, "--host", ANY, "--port", str(PORT), "--metrics-port", str(METRICS_PORT)]
        options += ["--routing", self._scenario.routing, "--durability", self._scenario.durability]
        options += ["--data", DATA, "--config", f"{DATA}/broker.toml"]
        link = self.links.get(host.name)
        if link is not None and link.relay is not None:
            options += ["--parent", f"{self._gateway}:{await link.relay.open()}"]
        elif link is not None:
            options += ["--parent", f"{link.parent.ip}:{PORT}"]
        binds = {str(folder): {"bind": DATA, "mode": "rw"}}
        return await self._create(["broker.runtime.command", *options], host.name, host.ip, binds, BROKER_MEMORY)

    def _folder(self, name: str) -> Path:
        folder = self._place.raw / name
        folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            os.chown(folder, UID, UID)
        return folder.absolute()

    async def _create(
        self, command: list[str], name: str, ip: str, binds: dict[str, Any], memory: str, **more: Any
    ) -> Container:
        user = f"{UID}:{UID}" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
        container: Container = await self._engine.do(
            self._engine.client.containers.create,
            self._tag, command, name=f"brokerbed-{self._labels[LABEL]}-{name}", hostname=name, user=user,
            read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"], mem_limit=memory, pids_limit=128,
            tmpfs=SCRATCH, volumes=binds, labels=self._labels, network=self._network.name,
            networking_config={self._network.name: EndpointConfig("1.40", ipv4_address=ip)}, **more,
        )  # fmt: skip
        self._containers.append(container)
        return container

    async def clients(self, part: int, parts: int) -> ClientProcess:
        place, name = self._place, f"clients-{part + 1}"
        options = clients_options(self._scenario, place, part, parts, DATA)
        binds = {
            str(self._folder("clients")): {"bind": DATA, "mode": "rw"},
            str(place.scenario_file.absolute()): {"bind": SCENARIO, "mode": "ro"},
        }
        container = await self._create(
            ["clients.process", SCENARIO, *options], name, self._addresses.pop(), binds, CLIENTS_MEMORY, stdin_open=True
        )
        attach = self._engine.client.api.attach_socket
        stream = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        sock = raw_socket(await self._engine.do(attach, container.id, stream))

        async def wait() -> int:
            return int((await self._engine.do(container.wait))["StatusCode"])

        attached, said = Attached(sock, wait), Said()
        self._attached.append(attached)
        await attached.open()
        said.listen(attached.stderr)
        await self._engine.do(container.start)
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
        for host in self.hosts.values():
            host.check()
        for clients in self._clients:
            clients.check()
        if self._watching is not None and self._watching.done():
            self._watching.result()

    async def _watch(self) -> None:
        """Brokers that died though nobody killed them; an engine that is gone."""
        filters = {"label": f"{LABEL}={self._labels[LABEL]}"}
        while True:
            await asyncio.sleep(WATCH_S)
            found = await self._engine.do(self._engine.client.api.containers, all=True, filters=filters)
            gone = {it["Id"] for it in found if it["State"] in ("exited", "dead")}
            for host in self.hosts.values():
                if host.container is not None and host.container.id in gone:
                    await host.died()

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for relay in self._relays:
            relay.close()
        for attached in self._attached:
            attached.end()
        with suppress(GroundError):
            await all_of(self._remove(container) for container in self._containers)
            if self._network is not None:
                await self._engine.do(self._network.remove)
        self._engine.close()

    async def _remove(self, container: Container) -> None:
        await self._engine.do(container.remove, force=True, v=True)


class DockerGround(RealGround):
    def check(self, scenario: Scenario) -> None:
        """Whether there is an engine."""
        del scenario
        Engine().close()

    def network(self, scenario: Scenario, place: Place) -> DockerNetwork:
        engine = Engine()
        clean(engine.client)
        return DockerNetwork(scenario, place, image.ensure(engine.client, lambda _: None), engine)
