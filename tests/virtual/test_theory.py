"""The short version of theory.py: small trees and few cycles, with bounds that fit. The long one: `make theory-campaign`."""

import pytest

from brokerbed.analysis.predict import predict
from tests.virtual.figures import simulate
from tests.virtual.theory import COMMUTE, Case, centre, commute, compared, scenario_of, table3

SMALL = """
scenario: 1
name: small
clock: {{warmup: 10s, measure: {measure}s}}
topology: {{tree: levels, brokers: 15, width: 4}}
routing: {routing}
classes: 20
subscriptions: {{mean_active: 60, lifetime: {{mean: 5s, law: {law}}}}}
publications: {{rate: 30/s}}
"""
RATES = ("table.remote_entries", "table.local_entries", "rate.notifications", "rate.notifications.additional",
         "rate.control")  # fmt: skip


def check(case: Case) -> None:
    for metric, figure in compared(case).items():
        assert figure.measured == pytest.approx(figure.expected, rel=case.within), metric


@pytest.mark.parametrize("routing", ["identity", "simple"])
def test_small_tree(routing: str) -> None:
    check(Case(routing, SMALL.format(routing=routing, law="exponential", measure=1200), 0.04, RATES))


def test_flooding_is_exact() -> None:
    """Every notification crosses every link once: 14 links."""
    scenario = scenario_of(SMALL.format(routing="flooding", law="exponential", measure=60))
    measured = simulate(scenario).headline()
    assert measured["table.remote_entries"] == measured["rate.control"] == 0
    assert measured["rate.notifications.additional"] == 0
    assert measured["rate.notifications"] * 60 % 14 == pytest.approx(0, abs=1e-6)
    assert measured["rate.notifications"] == pytest.approx(14 * 30, rel=0.05)


@pytest.mark.parametrize("law", ["deterministic", "uniform", "lognormal"])
def test_only_the_mean_of_lifetimes_matters(law: str) -> None:
    """Insensitivity: the prediction knows no law."""
    check(Case(law, SMALL.format(routing="identity", law=law, measure=1200), 0.04, RATES))


def test_refresh_is_counted() -> None:
    scenario = scenario_of(SMALL.format(routing="identity", law="exponential", measure=200) + "refresh: 2s\n")
    measured = simulate(scenario).headline()
    predicted = {row.metric: row.predicted for row in predict(scenario, detail=False).rows if not row.labels}
    assert measured["rate.control"] == pytest.approx(predicted["rate.control"], rel=0.03)


def test_groups_wide_subscriptions_places_and_sources() -> None:
    text = SMALL.format(routing="identity", law="exponential", measure=4000)
    text = text.replace("classes: 20", "classes: {count: 20, groups: 3}").replace(
        "rate: 30/s", "rate: 20/s, where: [b0, b5, b9]"
    )
    text = text.replace("mean_active: 60,", "mean_active: 30, where: leaves, wide: {mean_active: 6},")
    text = text.replace("[b0, b5, b9]", "[b0, b5, b9], sources: {on: {mean: 2s}, off: {mean: 4s}}")
    check(Case("groups", text, 0.04, RATES))


def test_on_off_centre() -> None:
    """Within three standard errors: c / sqrt(cycles) with c = 2.3 at this load (MODELS.md, part 2)."""
    check(Case("centre", centre(2, 2.0, 1600, 10), 3 * 2.3 / (400 * 10) ** 0.5))


def test_table_3_degraded() -> None:
    """Two intermittent peers in series: the prediction and a simulation of the tandem, which says 2.6385 s."""
    check(Case("degraded", table3(2, (1, 1), (1.5, 1.5), (50, 1500), 4), 0.05))
    scenario = scenario_of(table3(2, (1, 1), (1.5, 1.5), (50, 1500), 4))
    assert predict(scenario, detail=False).ways[0].end_to_end_s == pytest.approx(2.6385, abs=0.012)


@pytest.mark.parametrize(("order", "within"), [("recorded", 0.06), ("shuffled", 0.12)])
def test_recorded_connectivity(order: str, within: float) -> None:
    """20 passes, within three standard errors; each mean is far outside of the other's bounds.

    The predictions are those of message by message simulations, too (tests/unit/analysis/test_recorded.py).
    """
    check(Case(order, commute(order, 1, 20), within, files=(COMMUTE,)))
