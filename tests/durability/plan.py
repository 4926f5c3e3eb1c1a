"""What a run of the kill tests does: how many brokers and clients, who publishes and subscribes to what, how often it kills."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.durability.brokers import COMMAND
from tests.durability.ledger import Reader, Stream
from tests.durability.packets import LEVEL_5, LEVEL_311
from tests.durability.visitors import Ending

TOPICS = ("load/0/x", "load/1/x", "load/2/x")
KEPT = "kept"  # topics that begin so have retained messages; each belongs to one publisher
RECEIVE_MAXIMUM_SMALL = 10  # of some subscribers, so that messages wait for them at the broker


@dataclass(frozen=True)
class Role:
    """A kind of subscriber. Its filters do not overlap: with overlapping ones a broker may send several copies."""

    filters: Sequence[str]
    qos: int
    level: int
    receive_maximum: int = 65_535
    group: str = ""
    ending: Ending | None = None  # of its sessions; None: they stay


ROLES = (
    Role(("load/#",), 2, LEVEL_5),
    Role(("load/0/x", "load/1/x"), 1, LEVEL_311),
    Role(("load/+/x",), 1, LEVEL_5, RECEIVE_MAXIMUM_SMALL),
    Role(("load/2/x", "load/0/x", f"{KEPT}/#"), 2, LEVEL_311),
    Role(("load/#",), 1, LEVEL_311),
    Role(("load/1/x", f"{KEPT}/#"), 2, LEVEL_5, RECEIVE_MAXIMUM_SMALL),
)
MIXED_ROLES = (
    Role(("load/#", f"{KEPT}/#"), 0, LEVEL_5),
    Role(("load/#",), 2, LEVEL_5, group="pair"),
    Role(("load/#",), 2, LEVEL_311, group="pair"),
    Role(("load/1/x",), 1, LEVEL_311, group="other"),
    Role(("load/1/x",), 1, LEVEL_5, RECEIVE_MAXIMUM_SMALL, group="other"),
    Role(("load/#", f"{KEPT}/#"), 2, LEVEL_5, RECEIVE_MAXIMUM_SMALL, ending=Ending.CLEAN_START),
    Role(("load/#",), 1, LEVEL_311, ending=Ending.CLEAN_START),
    Role(("load/#",), 2, LEVEL_5, RECEIVE_MAXIMUM_SMALL, ending=Ending.DISCONNECT),
    Role((f"{KEPT}/#", "load/0/x"), 1, LEVEL_5, ending=Ending.EXPIRY),
)
AUDITOR = Role((f"{KEPT}/#",), 2, LEVEL_5, ending=Ending.CLEAN_START)  # looks at what is retained in the end


@dataclass(frozen=True)
class Plan:
    kills: int
    seed: int = 1
    chain: bool = False  # a - b - c, a the root; else one broker
    durability: str | None = "process"  # None: started without --data and --durability
    routing: str = "identity"
    command: Sequence[str] = COMMAND
    mosquitto: str | None = None  # the path of the program: it is under test instead
    publishers: int = 4
    subscribers: int = 4  # whose sessions stay
    is_mixed: bool = True  # also QoS 0, retained messages, groups that share a subscription, and sessions that end
    window: int = 16  # messages that a publisher has open
    rate_per_s: float = 800.0  # of one publisher, at most
    load_s: tuple[float, float] = (0.02, 0.2)  # from a broker's answer to the next kill
    early_share: float = 0.1  # of the kills: the broker that has just been started, before it need have answered
    early_s_max: float = 0.4
    away_share: float = 0.25  # of the subscribers: not connected from one kill to the next
    ending_share: float = 0.25  # of the visitors: their session ends after a kill
    quiet_s: float = 5.0  # nothing arrives for so long: nothing more will
    is_spared: bool = False  # the control: connections are cut instead, and a broker that lives on has to lose nothing
    links_repeat: bool = True  # a link may send a message at QoS 1 again, without DUP towards the subscriber

    def streams(self, places: Sequence[str]) -> list[Stream]:
        out: list[Stream] = []
        for number in range(self.publishers):
            name, place = f"p{number}", places[number % len(places)]
            for topic in TOPICS:
                for qos in (0, 1, 2) if self.is_mixed else (1, 2):
                    out.append(Stream(name, topic, qos, place, len(out)))
            for qos in (0, 1, 2) if self.is_mixed else ():
                out.append(Stream(name, f"{KEPT}/{name}/{qos}", qos, place, len(out), is_retained=True))
        return out

    def readers(self, places: Sequence[str]) -> list[tuple[Reader, Role]]:
        """The subscribers. All members of a group are at one broker: each broker serves its own members."""
        roles = [ROLES[number % len(ROLES)] for number in range(self.subscribers)]
        roles += MIXED_ROLES if self.is_mixed else ()
        out: list[tuple[Reader, Role]] = []
        groups: dict[str, str] = {}
        for number, role in enumerate(roles):
            place = places[number % len(places)]
            if role.group:
                place = groups.setdefault(role.group, place)
            is_visitor = role.ending is not None
            out.append((Reader(f"s{number}", role.filters, role.qos, place, role.group, is_visitor), role))
        return out

    def auditors(self, places: Sequence[str]) -> list[tuple[Reader, Role]]:
        """One for each broker."""
        names = [(f"auditor-{place}", place) for place in places if self.is_mixed]
        return [(Reader(name, AUDITOR.filters, AUDITOR.qos, place, "", True), AUDITOR) for name, place in names]
