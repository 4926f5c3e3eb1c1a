"""Distributions of delays: against what is known in closed form, against the means, against a queue that is played."""

from random import Random

import numpy as np
import pytest

from brokerbed.analysis.models.distribution import Known, Times, share_longer, times_of
from brokerbed.analysis.models.intermittent import Centre

Named = tuple[str, float] | None
SQUARES = {"exponential": 2.0, "deterministic": 1.0, "uniform": 4 / 3}  # second moments of laws with mean 1
ON_S, RATE = 20.0, 2.0
TIMES_S = np.array([0.05, 0.5, 2.0, 8.0])


def centre_of(service: Named, off: Named) -> Centre:
    demand = (service[1], service[1] ** 2 * SQUARES[service[0]]) if service else (0.0, 0.0)
    return Centre(*demand, ON_S, off[1], off[1] ** 2 * SQUARES[off[0]]) if off else Centre(*demand)


def queue(service: Named, off: Named = None, rate: float = RATE) -> Times:
    found = times_of(centre_of(service, off), rate, service, off)
    assert found is not None
    return found


def test_m_m_1_is_exponential() -> None:
    """Service at 4/s and arrivals at 2/s leave 2/s."""
    found = share_longer([queue(("exponential", 0.25))], 0.0, TIMES_S)
    assert found == pytest.approx(np.exp(-2 * TIMES_S), abs=1e-7)


def test_two_queues_and_a_constant_delay() -> None:
    """Alike: Erlang's law, (1 + 2 t) exp(-2 t), and everything 0.3 s later."""
    found = share_longer([queue(("exponential", 0.25))] * 2, 0.3, TIMES_S)
    late = TIMES_S - 0.3
    assert found == pytest.approx(np.where(late < 0, 1.0, (1 + 2 * late) * np.exp(-2 * late)), abs=1e-7)


def test_server_that_takes_no_time_but_goes_away() -> None:
    """Half of the messages find it gone, and wait for the rest of an exponential period."""
    found = share_longer([queue(None, ("exponential", 20.0))], 0.0, TIMES_S)
    assert found == pytest.approx(0.5 * np.exp(-TIMES_S / 20), abs=1e-7)


def test_m_d_1_by_erlang() -> None:
    """P(wait > t) within one service time is 1 - (1 - load) exp(rate t); service of 0.25 s comes on top."""
    found = share_longer([queue(("deterministic", 0.25))], 0.0, np.array([0.2, 0.3, 0.45]))
    assert found == pytest.approx([1.0, 1 - 0.5 * np.exp(2 * 0.05), 1 - 0.5 * np.exp(2 * 0.2)], abs=1e-3)


@pytest.mark.parametrize("off", [None, *((law, 20.0) for law in SQUARES)], ids=str)
@pytest.mark.parametrize("service", [None, *((law, 0.125) for law in SQUARES)], ids=str)
def test_mean_is_that_of_the_centre(service: Named, off: Named) -> None:
    """The area below the curve is the mean."""
    times_s = np.linspace(1e-6, 800.0 if off else 8.0, 20_001)
    area = np.trapezoid(share_longer([queue(service, off)], 0.0, times_s), times_s)
    assert area == pytest.approx(float(centre_of(service, off).response_s(RATE)), rel=0.002, abs=3e-4)


def test_lognormal_laws_have_no_curve() -> None:
    assert times_of(Centre(0.1, 0.02), 1.0, ("lognormal", 0.1), None) is None


def test_queue_played_by_hand() -> None:
    """Exponential service of 0.125 s on average, 20 s ON, OFF from 0 to 40 s: a hundred thousand messages."""
    stream = Random(3)
    now = free = 0.0
    on_until = stream.expovariate(1 / ON_S)
    delays = []
    for _ in range(100_000):
        now += stream.expovariate(RATE)
        free, left = max(free, now), stream.expovariate(1 / 0.125)
        while free + left > on_until:  # the rest after the outage
            left -= max(0.0, on_until - free)
            free = max(free, on_until + stream.uniform(0, 40))
            on_until = free + stream.expovariate(1 / ON_S)
        free += left
        delays.append(free - now)
    times_s = np.array([1.0, 10.0, 20.0, 40.0])
    found = share_longer([queue(("exponential", 0.125), ("uniform", 20.0))], 0.0, times_s)
    played = [float(np.mean(np.array(delays) > it)) for it in times_s]
    assert played == pytest.approx(found.tolist(), abs=0.02)


def test_quantiles_of_m_m_1() -> None:
    """What is exponential with rate 2/s exceeds ln(1 / q) / 2 with the probability q."""
    known = Known(lambda times_s: share_longer([queue(("exponential", 0.25))], 0.0, times_s), 0.5)
    for share in (0.5, 0.95, 0.99):
        assert known.quantile_s(share) == pytest.approx(-np.log(1 - share) / 2, rel=1e-5)


def test_quantiles_where_many_messages_take_no_time() -> None:
    """Half of the messages find a server that takes no time but goes away, for 20 s on average."""
    known = Known(lambda times_s: share_longer([queue(None, ("exponential", 20.0))], 0.0, times_s), 10.0)
    assert known.quantile_s(0.4) == pytest.approx(0, abs=1e-4)
    assert known.quantile_s(0.95) == pytest.approx(20 * np.log(0.5 / 0.05), rel=1e-5)
    assert Known(np.zeros_like, 0.0).quantile_s(0.99) == 0


def test_quantiles_with_a_constant_delay() -> None:
    known = Known(lambda times_s: share_longer([queue(("exponential", 0.25))], 3.0, times_s), 3.5)
    assert known.quantile_s(0.5) == pytest.approx(3 + np.log(2) / 2, rel=1e-5)
