"""The engines of a run: where containers run, how they reach each other, and how files are transferred.

The default engine of this machine is near: folders are mounted, and there is one network, which the orchestrator can
reach. Engines that the user names are far, wherever they run: files are copied, and ports are published on
their machines. If they are nodes of a swarm whose manager is the first, all containers are on one overlay network; if
not, there is a network per engine, and what must reach another engine goes through published ports.
"""

import asyncio
import io
import random
import socket
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from typing import Any

from docker.errors import NotFound
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import IPAMConfig, IPAMPool

from brokerbed.broker.runtime.store import FILE as STORE_FILE
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.engine import LABEL, LOOPBACK, Engine
from brokerbed.orchestrator.grounds.network import all_of

SUBNETS = [f"10.{second}.{third}.0/22" for second in (213, 214, 215) for third in range(0, 256, 4)]
PORTS = range(20_000, 32_000)  # ports to publish; below the range of ephemeral ports
OTHERS = 100  # addresses left to the engine: a swarm has an endpoint per network and node
ADDRESSES = 2**10 - 3 - OTHERS  # usable addresses of a /22, without network, broadcast and gateway
UID = 10001  # user id in containers, unless it is the user of the orchestrator
REMOVE_TRIES, REMOVE_S = 50, 0.2  # a swarm takes a while to remove a network


@dataclass
class Site:
    """One engine, and the network of the run on it."""

    engine: Engine
    machine: str  # its address as other machines see it
    network: Any
    gateway: str
    addresses: list[str]  # addresses that are not used yet

    def address(self) -> str:
        if not self.addresses:
            raise GroundError(
                f"a network has addresses for {ADDRESSES} brokers and processes of clients, and this run needs more:"
                " make the tree smaller, share it out with --engine, or run it --on virtual",
                is_missing=True,
            )
        return self.addresses.pop()


class Sites:
    def __init__(self, engines: Sequence[Engine], labels: dict[str, str], is_near: bool) -> None:
        self.is_near = is_near
        self.all: list[Site] = []
        self._engines = engines
        self._labels = labels
        self._is_swarm = False
        self._ports = random.sample(PORTS, len(PORTS))  # shuffled, because other programs may use this range, too

    async def open(self) -> None:
        """Creates the networks of the run."""
        first = self._engines[0]
        self._is_swarm = not self.is_near and await _is_manager(first)
        shared: Site | None = None
        for engine in self._engines:
            machine = await self._machine_of(engine)
            if shared is None:
                site = await self._site(engine, machine)
            else:
                site = Site(engine, machine, shared.network, shared.gateway, shared.addresses)
            if self._is_swarm:
                shared = site
            self.all.append(site)

    async def _machine_of(self, engine: Engine) -> str:
        loop = asyncio.get_running_loop()
        machine = await loop.run_in_executor(None, lambda: engine.machine)
        others = [engine for engine in self._engines if not engine.is_near]
        if engine.is_near and others:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # no packet is sent
                probe.connect((await loop.run_in_executor(None, lambda: others[0].machine), 1))
                return str(probe.getsockname()[0])
        return machine

    async def _site(self, engine: Engine, machine: str) -> Site:
        """Creates a network whose addresses we assign, so that a broker keeps its address when it is restarted."""
        driver = {"driver": "overlay", "attachable": True} if self._is_swarm else {"driver": "bridge"}
        for subnet in SUBNETS:
            name = f"brokerbed-{self._labels[LABEL]}-{subnet.split('/')[0].replace('.', '-')}"
            pool = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
            try:
                network = await engine.do(
                    engine.client.networks.create, name,
                    internal=self.is_near, ipam=pool, labels=self._labels, **driver,
                )  # fmt: skip
            except GroundError as error:
                if "overlap" in str(error):
                    continue
                raise
            first, *rest = [str(address) for address in IPv4Network(subnet).hosts()]
            return Site(engine, machine, network, first, rest[OTHERS:][::-1])
        raise GroundError("no network can be made: all addresses are taken (brokerbed clean, docker network prune)")

    @property
    def is_one_network(self) -> bool:
        return self._is_swarm or len(self._engines) == 1

    def port(self) -> int:
        return self._ports.pop()

    def distribute(self, names: Sequence[str]) -> dict[str, Site]:
        """Distributes brokers over the engines; neighbours in this order share an engine as far as possible."""
        count = len(self.all)
        return {name: self.all[number * count // len(names)] for number, name in enumerate(names)}

    def published_on(self, site: Site) -> str:
        """The address on which the machine publishes ports: only the interface that must be reachable."""
        return LOOPBACK if site.engine.is_near and len(self.all) == 1 else site.machine

    async def close(self) -> None:
        networks = {site.network.id: site for site in self.all}
        await all_of(self._remove(site) for site in networks.values())
        for engine in self._engines:
            engine.close()

    async def _remove(self, site: Site) -> None:
        for _ in range(REMOVE_TRIES if self._is_swarm else 1):
            with suppress(GroundError):  # it is still used, or its engine is gone
                if await site.engine.do(_is_gone, site.network) or not self._is_swarm:
                    return
            await asyncio.sleep(REMOVE_S)


def _is_gone(network: Network) -> bool:
    """Removes the network. Returns True if it was gone already."""
    try:
        network.remove()
    except NotFound:
        return True
    return False


async def _is_manager(engine: Engine) -> bool:
    information: Any = await engine.do(engine.client.info)
    return bool(information.get("Swarm", {}).get("ControlAvailable"))


async def put(engine: Engine, container: Container, folder: str, files: Mapping[str, bytes]) -> None:
    """Copies files into a volume of a container that is not started yet."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o644, UID, UID
            tar.addfile(entry, io.BytesIO(content))
    await engine.do(container.put_archive, folder, packed.getvalue())


async def fetch(engine: Engine, container: Container, folder: str, target: Path) -> None:
    """Copies all files of a container except the store, which is useless without its broker."""

    def fetch() -> None:
        target.mkdir(parents=True, exist_ok=True)
        chunks, _ = container.get_archive(folder)
        with tempfile.TemporaryFile(dir=target) as packed:
            packed.writelines(chunks)
            packed.seek(0)
            with tarfile.open(fileobj=packed) as tar:
                for entry in tar:
                    name, content = PurePosixPath(entry.name).name, tar.extractfile(entry)
                    if content is not None and not name.startswith(STORE_FILE):
                        with (target / name).open("wb") as out:
                            copyfileobj(content, out)

    await engine.do(fetch)
