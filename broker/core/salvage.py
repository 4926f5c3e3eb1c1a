"""What a broker keeps of the rows of a damaged store: rows that can be used without those that are missing.

Links begin anew, with everything that waited on them lost: the numbers of packets and the entries that a neighbour has
acknowledged must be those of the last commit, or what is sent next would be taken for a copy. A session that was on its
way to another broker stays.
"""

from brokerbed.broker.core import persist
from brokerbed.broker.core.link import MOVE_TOPIC
from brokerbed.broker.core.restore import NUMBER
from brokerbed.broker.core.rows import OF_DELIVERY, Row

_LINK, _MOVE, _SESSION_LENGTH = 3, 6, 7  # in the row of a session
_OF_SESSION = (persist.SUBSCRIPTION, persist.RECEIVED, persist.DELIVERY, persist.SENT_RUN)
_LINK_KINDS = (persist.ENTRY, persist.ANNOUNCED, persist.RECEIVED_ID)


def salvaged(rows: dict[int, Row]) -> list[tuple[int, Row]]:
    """The rows that are kept, in the order of their keys."""
    sessions = {row[0]: number for number, row in _of_kind(rows, persist.SESSION) if row[_LINK] is None}
    numbers = set(sessions.values())  # of the newest session of each client
    messages = {number: row for number, row in _of_kind(rows, persist.MESSAGE) if row[0] != MOVE_TOPIC}
    runs = dict(_of_kind(rows, persist.RUN))
    kept: dict[int, Row] = {}
    used: set[int] = set()  # keys of messages and runs
    for key, row in sorted(rows.items()):
        kind = key & ~NUMBER
        if kind in _LINK_KINDS or kind in (persist.MESSAGE, persist.RUN):
            continue
        if kind == persist.SESSION:
            if key & NUMBER in numbers:
                kept[key] = row if len(row) < _SESSION_LENGTH else (*row[:_MOVE], None)
            continue
        if kind in _OF_SESSION and row[0] not in numbers:
            continue
        needs = _needs(kind, row)
        if needs is not None:
            if needs & NUMBER not in (messages if needs & ~NUMBER == persist.MESSAGE else runs):
                continue
            used.add(needs)
        kept[key] = row[:OF_DELIVERY] if kind == persist.DELIVERY else row
    return sorted({**kept, **{key: rows[key] for key in used}}.items())


def _of_kind(rows: dict[int, Row], kind: int) -> list[tuple[int, Row]]:
    """The numbers and rows of a kind, the oldest first."""
    return [(key & NUMBER, row) for key, row in sorted(rows.items()) if key & ~NUMBER == kind]


def _needs(kind: int, row: Row) -> int | None:
    """The key of the row without which this one cannot be used."""
    if kind in (persist.RETAINED, persist.ENTERING):
        return persist.MESSAGE | int(row[0])
    if kind == persist.DELIVERY and isinstance(row[1], int):
        return persist.MESSAGE | row[1]
    return persist.RUN | int(row[1]) if kind == persist.SENT_RUN else None
