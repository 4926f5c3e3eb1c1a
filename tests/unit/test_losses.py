"""What counts as lost, from logs that are written here event by event."""

from collections.abc import Sequence
from pathlib import Path

from brokerbed.clients.raw_log import append
from brokerbed.log.record import Kind, Log, Reason
from brokerbed.orchestrator.grounds.losses import losses, losses_text

CALM_NS = [100]  # subscriptions before are known everywhere when messages enter later
Told = tuple[int, Kind, str, str, int, Reason]  # time, kind, subject, topic, number of the message (of b1), reason


def event(
    time_ns: int, kind: Kind, subject: str = "", topic: str = "t", number: int = -1, reason: Reason = Reason.NONE
) -> Told:
    return time_ns, kind, subject, topic, number, reason


def write(folder: Path, *lives: Sequence[Told]) -> Path:
    for life, told in enumerate(lives, 1):
        log = Log()
        for time_ns, kind, subject, topic, number, reason in told:
            log.add(
                time_ns, kind, log.number(subject) if subject else -1, log.number(topic), number, 1, 1, reason,
                origin=log.number("b1.1") if number >= 0 else -1,
            )  # fmt: skip
        append(folder, life, log)
    return folder


def test_acknowledged_and_waiting_are_not_lost_but_what_the_broker_has_no_more_is(tmp_path: Path) -> None:
    one = write(
        tmp_path / "b1",
        [
            event(1, Kind.RECEIVED, "sensor", number=1),
            event(1, Kind.SENT, "phone", number=1),
            event(2, Kind.ACKNOWLEDGED, "phone", number=1),
            *(event(3, Kind.QUEUED, "phone", number=number) for number in (2, 3)),
        ],
    )
    assert losses({"b1": one}, {"b1": 2}, [], False) == []
    assert losses({"b1": one}, {"b1": 1}, [], False) == ["b1.1.2 to t at b1 for phone: gone with a crash"]


def test_drops_are_lost_unless_the_publisher_or_the_receiver_wanted_them(tmp_path: Path) -> None:
    reasons = (Reason.EXPIRED, Reason.SESSION_ENDED, Reason.QUEUE_FULL)
    dropped = [event(1, Kind.DROPPED, "phone", number=number, reason=why) for number, why in enumerate(reasons)]
    to_link = event(2, Kind.DROPPED, "b1>b2", number=3, reason=Reason.SESSION_ENDED)
    folders = {"b1": write(tmp_path / "b1", [*dropped, to_link]), "b2": write(tmp_path / "b2", [])}
    assert losses(folders, {"b1": 0, "b2": 0}, [], False) == [
        "b1.1.2 to t at b1 for phone: dropped, queue full",
        "b1.1.3 to t at b1 for b1>b2: dropped, session ended",
    ]


def test_what_the_other_end_of_a_link_received_is_not_lost_with_the_acknowledgement(tmp_path: Path) -> None:
    sent = [event(1, Kind.SENT, "b1>b2", number=number) for number in (1, 2)]
    folders = {
        "b1": write(tmp_path / "b1", sent, [event(9, Kind.STARTED)]),
        "b2": write(tmp_path / "b2", [event(2, Kind.RECEIVED, "b2>b1", number=1)]),
    }
    assert losses(folders, {"b1": 0, "b2": 0}, [], False) == ["b1.1.2 to t at b1 for b1>b2: gone with a crash"]


def subscribed(folder: Path, *after: Told) -> dict[str, Path]:
    """b2 has a subscriber before the network is calm; at b1 a message enters before that (1), and two after."""
    entered = [
        event(time_ns, Kind.RECEIVED, "sensor", "t/x", number) for time_ns, number in ((50, 1), (150, 2), (160, 3))
    ]
    return {
        "b1": write(folder / "b1", entered),
        "b2": write(folder / "b2", [event(10, Kind.SUBSCRIBED, "phone", "t/#"), *after]),
    }


def test_message_that_never_came_to_a_subscriber_known_everywhere_is_lost(tmp_path: Path) -> None:
    log = Kind.SENT, Kind.ACKNOWLEDGED
    folders = subscribed(tmp_path, *(event(170, kind, "phone", "t/x", 2) for kind in log))
    lost = losses(folders, {"b1": 0, "b2": 0}, CALM_NS, False)
    assert lost == ["b1.1.3 to t/x: never came to b2, where phone is subscribed"]


def test_message_for_somebody_who_has_unsubscribed_meanwhile_is_not_lost(tmp_path: Path) -> None:
    folders = subscribed(tmp_path, event(155, Kind.UNSUBSCRIBED, "phone", "t/#"))
    assert losses(folders, {"b1": 0, "b2": 0}, CALM_NS, False) == []


def test_subscription_goes_on_if_the_broker_has_it_after_a_crash_and_else_ends_there(tmp_path: Path) -> None:
    for again, lost in (([event(155, Kind.SUBSCRIBED, "phone", "t/#")], 2), ([], 1)):
        folder = tmp_path / str(lost)
        folders = subscribed(folder)
        write(folder / "b2", [], [event(155, Kind.STARTED), *again])
        assert len(losses(folders, {"b1": 0, "b2": 0}, CALM_NS, False)) == lost


def test_message_in_service_at_the_input_is_lost_with_a_crash_unless_it_is_served_later(tmp_path: Path) -> None:
    received = [event(1, Kind.RECEIVED, "sensor", number=number) for number in (1, 2, 3)]
    second = [
        event(5, Kind.STARTED),
        event(6, Kind.SERVED, "sensor", number=1),
        event(7, Kind.RECEIVED, "sensor", number=4),
    ]
    folder = write(tmp_path, [*received, event(2, Kind.SERVED, "sensor", number=2)], second)
    assert losses({"b1": folder}, {"b1": 0}, [], True) == ["b1.1.3 to t at b1: gone with a crash"]


def test_description_counts_all_and_shows_the_first() -> None:
    lines = losses_text([f"message {number}" for number in range(12)]).splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("12 deliveries at QoS 1 or 2 were lost:", 12, "... and 2 more")
