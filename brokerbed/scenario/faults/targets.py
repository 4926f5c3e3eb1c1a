"""What faults strike: brokers, links and peers. How each is written, checked and chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from brokerbed.scenario.checks import Path, Report, broker_exists, link_exists, pair_exists
from brokerbed.scenario.faults.network import ConnectedPeer, Host, Link, StruckNetwork
from brokerbed.scenario.part import BROKER_PAIR_SCHEMA, Name, broker_pair

if TYPE_CHECKING:
    from brokerbed.scenario.model import Scenario

ANY = "any"
_NAME_NEEDED = "target must be the name of a broker or the id of a peer"


def _link_or_any(value: Any) -> Any:
    return value if value == ANY else broker_pair(value, " or any")


class BrokerTarget:
    annotation: Any = Name

    def check(self, verb: str, value: str, scenario: "Scenario", path: Path, report: Report) -> None:  # noqa: ARG002
        if value != ANY:
            broker_exists(value, path, scenario.tree, report)

    def parse_json(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(_NAME_NEEDED)  # noqa: TRY004  # the value is wrong, not the call
        return value

    def check_present(self, verb: str, value: str, network: StruckNetwork) -> None:
        if not any(host.name == value for host in network.hosts):
            raise ValueError(f"there is no {value} to {verb}")

    def choose(self, value: str, network: StruckNetwork, draws: Random) -> Host:
        return draws.choice([host for host in network.hosts if value in (host.name, ANY)])

    def is_near_link(self, value: str, ends: tuple[str, str]) -> bool:
        return value in (ANY, *ends)

    def texts_near_link(self, ends: tuple[str, str]) -> list[str]:
        return list(ends)


class LinkTarget:
    annotation: Any = Annotated[
        tuple[str, str] | Literal["any"],
        BeforeValidator(_link_or_any),
        WithJsonSchema({"anyOf": [BROKER_PAIR_SCHEMA, {"const": ANY}]}),
    ]

    def check(self, verb: str, value: tuple[str, str] | str, scenario: "Scenario", path: Path, report: Report) -> None:
        if isinstance(value, tuple):
            exists = pair_exists if scenario.placement is not None else link_exists
            exists(value, path, scenario.tree, report)
        elif len(scenario.tree) == 1:
            report(path, f"there is no link to {verb}; the tree has one broker")

    def parse_json(self, value: object) -> tuple[str, str]:
        if not (isinstance(value, list) and len(value) == 2 and all(isinstance(end, str) for end in value)):
            raise ValueError("target must be a list of the two brokers at the ends of a link")
        return value[0], value[1]

    def check_present(self, verb: str, value: tuple[str, str], network: StruckNetwork) -> None:
        for end in value:
            BROKER.check_present(verb, end, network)
        if not any(_is_between(link, value) for link in network.links):
            raise ValueError(f"there is no link between {value[0]} and {value[1]}")

    def choose(self, value: tuple[str, str] | str, network: StruckNetwork, draws: Random) -> Link | None:
        """None if these brokers have no link at the moment, because it has moved."""
        links = [link for link in network.links if value == ANY or _is_between(link, value)]
        return draws.choice(links) if links else None

    def is_near_link(self, value: tuple[str, str] | str, ends: tuple[str, str]) -> bool:
        return value == ANY or set(value) == set(ends)

    def texts_near_link(self, ends: tuple[str, str]) -> list[str]:
        return [sign.join(way) for sign in "->" for way in (ends, ends[::-1])]


def _is_between(link: Link, ends: tuple[str, str] | str) -> bool:
    return set(ends) == {link.child.name, link.parent.name}


@dataclass(frozen=True, slots=True)
class StruckPeers:
    """One peer of the scenario, with all its copies; or a single copy."""

    name: str
    members: Sequence[ConnectedPeer]


class PeerTarget:
    annotation: Any = Name

    def check(self, verb: str, value: str, scenario: "Scenario", path: Path, report: Report) -> None:
        ids = {peer.id for peer in scenario.all_peers}
        if value == ANY and not ids:
            report(path, f"there are no peers to {verb}")
        elif value not in (ANY, *ids):
            report(path, f"there is no peer {value}")

    def parse_json(self, value: object) -> str:
        return BROKER.parse_json(value)

    def check_present(self, verb: str, value: str, network: StruckNetwork) -> None:
        if not self._members(value, network):
            raise ValueError(f"there is no {value} to {verb}")

    def choose(self, value: str, network: StruckNetwork, draws: Random) -> StruckPeers | None:
        if value != ANY:
            members = self._members(value, network)
            return StruckPeers(value, members) if members else None
        if not network.peers:
            return None
        chosen = draws.choice(network.peers)
        return StruckPeers(chosen.peer.id, [chosen])

    def is_near_link(self, value: str, ends: tuple[str, str]) -> bool:  # noqa: ARG002
        return False

    def texts_near_link(self, ends: tuple[str, str]) -> list[str]:  # noqa: ARG002
        return []

    def _members(self, name: str, network: StruckNetwork) -> list[ConnectedPeer]:
        """The copies of p1 are p1.0, p1.1, ..."""
        return [peer for peer in network.peers if name in (peer.peer.id, peer.peer.id.rsplit(".", 1)[0])]


BROKER, LINK, PEER = BrokerTarget(), LinkTarget(), PeerTarget()
