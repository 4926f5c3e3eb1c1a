"""Warnings on a terminal: each told once."""

import pytest

from brokerbed import present
from brokerbed.analysis.predict import predict
from tests.conftest import MINIMAL, FromText

SWEPT = """
topology: {tree: star, brokers: 3}
publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]
subscribers: [{id: s, broker: b2, topic: t, service: {mean: 0.1s}}, {id: z, broker: b2, topic: u}]
sweep: {publishers.p.rate: [1/s, 11/s, 11/s]}
"""


def test_warning_of_several_points_is_told_once_with_their_number(
    from_text: FromText, capsys: pytest.CaptureFixture[str]
) -> None:
    """The subscriber is at 10 messages a second; the topic u is wrong at every point."""
    points = from_text(MINIMAL + SWEPT).points
    present.print_warnings([predict(it, detail=False) for it in points])
    assert capsys.readouterr().err.splitlines() == [
        "warning: subscriber z at b2 receives nothing, as nobody publishes to u; correct its topic, or publish to it (topics of publishers: t) (at every point)",
        "unstable: the subscriber queue at s has utilisation 1.1, which must be below 1; what depends on it has no prediction (at 2 of 3 points, first at publishers.p.rate=11/s)",
    ]


def test_utilisation_just_above_one_does_not_look_like_one(
    from_text: FromText, capsys: pytest.CaptureFixture[str]
) -> None:
    (point,) = from_text(MINIMAL + SWEPT.replace("2/s", "10.0001/s").partition("sweep")[0]).points
    present.print_warnings([predict(point, detail=False)])
    assert "the subscriber queue at s has utilisation 1.00001, which must be below 1" in capsys.readouterr().err
