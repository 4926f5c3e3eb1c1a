"""One end of an overlay link: who is at the other end, and what was sent to it."""

from broker.routing.strategy import Entry

LINK_ID = "$link/"  # client ids of links begin so, and no other client may use such an id
NAME, INSTANCE, IDENTITY, PATH = "overlay-name", "overlay-instance", "overlay-identity", "overlay-path"  # properties
PATH_TOPIC = "$overlay/path"  # a parent tells its children of its ancestors
NOTIFICATION, SUBSCRIBE, UNSUBSCRIBE = "notification", "subscribe", "unsubscribe"  # kinds of messages on links
REFRESH, RESYNC = "refresh", "resync"


class Link:
    __slots__ = ("entries", "instance", "is_parent", "peer", "sent")

    def __init__(self, peer: str, is_parent: bool) -> None:
        self.peer = peer
        self.is_parent = is_parent
        self.instance = ""  # of the peer's process, as it says
        self.entries: dict[Entry, int] = {}  # at a parent: what the child has told, and when it did so last
        self.sent = dict.fromkeys((NOTIFICATION, SUBSCRIBE, UNSUBSCRIBE, REFRESH, RESYNC), 0)


def property_of(properties: list[tuple[str, str]], name: str) -> str | None:
    return next((value for key, value in properties if key == name), None)
