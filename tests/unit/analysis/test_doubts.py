"""What is said of assumptions that do not hold: one sentence for each kind, with where, what follows and what to do."""

import re
from pathlib import Path

import pytest

from brokerbed.analysis.assumptions import doubts

ANALYSIS = Path(__file__).parents[3] / "docs" / "analysis.md"


def documented() -> list[str]:
    """The names in the table of assumptions."""
    section = ANALYSIS.read_text(encoding="utf-8").partition("## Assumptions")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[1:]
    return [name for row in rows for name in row.split("; ")]


def test_seventeen_of_one_kind_are_one_sentence_with_a_count_and_a_remedy() -> None:
    points = [f"publications.rate={rate}/s" for rate in range(1, 18)]
    (told,) = doubts([("stationary", "rate.control", point) for point in points])
    assert told == (
        "there is a trend in rate.control at publications.rate=1/s and 16 more, so the network was not in its steady"
        " state; use a longer clock.warmup, or a lower load if a queue keeps growing"
    )


def test_each_kind_has_its_own_sentence_in_the_order_in_which_they_came() -> None:
    found = doubts([("stationary", "rate.total", ""), ("load generators keep their rates", "b3", ""),
                    ("stationary", "delay.end_to_end p s", "")])  # fmt: skip
    assert [it.split(",")[0] for it in found] == [
        "there is a trend in rate.total and 1 more",
        "fewer messages than the scenario asks for were generated at b3",
    ]


def test_what_testbeds_say_of_themselves_is_told_once_though_its_figures_differ() -> None:
    names = [f"the testbed keeps up (b{it} was late by {it}.5 ms: lower clock.speedup)" for it in (3, 17)]
    assert doubts(
        [(name, "local", f"routing={it}") for name, it in zip(names, ("simple", "flooding"), strict=True)]
    ) == ["b3 was late by 3.5 ms: lower clock.speedup (on local at routing=simple and 1 more)"]


@pytest.mark.parametrize("name", documented())
def test_no_documented_assumption_is_said_to_hold_where_it_does_not(name: str) -> None:
    (told,) = doubts([(name if name != "the testbed keeps up" else f"{name} (it was late)", "b3", "")])
    assert name not in told
    assert "b3" in told or "it was late" in told


def test_the_table_of_assumptions_is_found() -> None:
    assert len(documented()) == 7
