"""What clients do: laws of the processes, what is there at time zero, and streams that do not disturb one another."""

import statistics
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile

import pytest

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.workload import (
    Duration,
    Share,
    arrivals,
    churn,
    messages,
    on_off,
    publications,
    recorded_on_off,
    shares_of,
    sources,
    stream,
)
from brokerbed.scenario import Law

LAWS = [
    Law(mean="10s"),
    Law(mean="10s", law="deterministic"),
    Law(mean="10s", law="uniform"),
    Law(mean="10s", law="lognormal", cv=0.5),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
def test_residual_lifetimes_have_the_mean_of_renewal_theory(law: Law) -> None:
    """E[residual] = E[X^2] / (2 E[X]): 10, 5, 6.67 and 6.25 s."""
    duration = Duration(law, stream(1, law.law))
    drawn = [duration.residual_ns() / NS_PER_S for _ in range(40_000)]
    expected = law.second_moment_s2 / (2 * law.mean_s)
    assert statistics.fmean(drawn) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
def test_population_is_stationary_from_the_beginning(law: Law) -> None:
    """Little's law at every moment, also at time zero: 3 per second, for 10 s each, are 30."""
    counts: dict[int, list[int]] = {second: [] for second in (0, 1, 5, 20)}
    for seed in range(300):
        changes = list(
            takewhile(lambda it: it.time_ns <= 20 * NS_PER_S, churn([Share(0.3, range(10), law)], stream(seed)))
        )
        for second, found in counts.items():
            found.append(sum(1 if it.is_subscribed else -1 for it in changes if it.time_ns <= second * NS_PER_S))
    for second, found in counts.items():
        assert statistics.fmean(found) == pytest.approx(30, abs=4 * (30 / 300) ** 0.5), second
        assert statistics.variance(found) == pytest.approx(30, rel=0.35), second  # Poisson, whatever the law


def test_slots_tell_equal_subscriptions_apart() -> None:
    active: set[tuple[int, int]] = set()
    last_ns = 0
    for change in islice(churn([Share(1.0, range(3), LAWS[0])], stream(7)), 5000):
        key = change.class_number, change.slot
        assert (key in active) != change.is_subscribed
        active ^= {key}
        assert change.time_ns >= last_ns
        last_ns = change.time_ns
    most = max(slot for _, slot in active)
    assert most < 40  # free slots are used again


def test_rates_and_classes_of_publications() -> None:
    shares = [Share(1.0, range(4)), Share(6.0, (9,))]
    found = list(takewhile(lambda it: it[0] < 2000 * NS_PER_S, publications(shares, stream(3))))
    assert len(found) / 2000 == pytest.approx(10, rel=0.03)
    of_nine = sum(number == 9 for _, number in found)
    assert of_nine / len(found) == pytest.approx(0.6, abs=0.02)
    assert {number for _, number in found} == {0, 1, 2, 3, 9}


def test_poisson_gaps_are_exponential() -> None:
    times = [time_ns for time_ns, _ in islice(arrivals([4.0], stream(5)), 20_000)]
    gaps = [(after - before) / NS_PER_S for before, after in pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.03)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
def test_on_off_is_stationary(law: Law) -> None:
    """On for a third of the time, at time zero and later."""
    off = Law(mean="20s")
    is_on = {0: 0, 37: 0}
    for seed in range(2000):
        times = list(takewhile(lambda it: it[0] <= 37 * NS_PER_S, on_off(law, off, stream(seed, "x"))))
        is_on[0] += times[0][1]
        is_on[37] += times[-1][1]
    for second, count in is_on.items():
        assert count / 2000 == pytest.approx(1 / 3, abs=4 * (2 / 9 / 2000) ** 0.5), second


def test_streams_are_named_and_independent() -> None:
    one = [stream(1, "subscriptions", "b1").random() for _ in range(2)]
    assert one[0] == one[1]
    others = [stream(1, "subscriptions", "b2"), stream(2, "subscriptions", "b1"), stream(1, "publications", "b1")]
    assert len({one[0], *(it.random() for it in others)}) == 4


def test_shares_of_a_broker() -> None:
    every = Share(2.0, ())
    assert shares_of(every, {}, 5) == [Share(2.0, range(5))]
    own = {3: Share(9.0, (3,)), 1: Share(0.0, (1,))}
    assert shares_of(every, own, 5) == [Share(2.0, (0, 2, 4)), Share(9.0, (3,))]
    assert shares_of(None, own, 5) == [Share(9.0, (3,))]
    assert shares_of(Share(0.0, ()), {}, 5) == []


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
def test_sources_are_stationary_and_take_turns(law: Law) -> None:
    """On for a third of the time, at time zero and later; each source changes its state at every switch."""
    off, is_on_at = Law(mean="20s"), {0: 0, 37: 0}
    for seed in range(200):
        on: set[int] = set()
        at_zero = 0
        last_ns = 0
        for switch in takewhile(lambda it: it.time_ns <= 37 * NS_PER_S, sources(law, off, range(5, 15), stream(seed))):
            assert (switch.class_number in on) != switch.is_on
            assert switch.time_ns >= last_ns
            last_ns = switch.time_ns
            on ^= {switch.class_number}
            at_zero = len(on) if switch.time_ns == 0 else at_zero
        assert on <= set(range(5, 15))
        is_on_at[0] += at_zero
        is_on_at[37] += len(on)
    for second, count in is_on_at.items():
        assert count / 2000 == pytest.approx(1 / 3, abs=4 * (2 / 9 / 2000) ** 0.5), second


@dataclass(frozen=True)
class Trace:
    """Recorded cycles of seconds."""

    cycles_s: tuple[tuple[int, int], ...]
    is_shuffled: bool = False

    @property
    def cycles_ns(self) -> list[tuple[int, int]]:
        return [(on * NS_PER_S, off * NS_PER_S) for on, off in self.cycles_s]

    @property
    def pass_ns(self) -> int:
        return sum(map(sum, self.cycles_ns))


CYCLES_S = ((1, 10), (2, 20), (3, 30), (4, 40))


def test_recorded_periods_follow_one_another() -> None:
    """After the first one, which is cut, all periods of a pass come in their order, from every place."""
    once = [period for cycle in CYCLES_S for period in cycle]
    for seed in range(20):
        changes = list(islice(recorded_on_off(Trace(CYCLES_S), stream(seed)), 30))
        assert changes[0][0] == 0
        assert [is_on for _, is_on in changes] == [changes[0][1] ^ bool(place % 2) for place in range(30)]
        periods = [(after - before) // NS_PER_S for (before, _), (after, _) in pairwise(changes)][1:]
        begin = once.index(periods[0])
        assert periods == (once * 5)[begin : begin + 28]


def test_shuffled_periods_are_those_of_the_trace_in_every_pass() -> None:
    changes = list(islice(recorded_on_off(Trace(CYCLES_S, is_shuffled=True), stream(3)), 4001))
    periods = [((after - before) // NS_PER_S, is_on) for (before, is_on), (after, _) in pairwise(changes)]
    end = -(len(periods) % 8) or None
    begins = [place for place in range(1, 9) if periods[place][1]]
    for begin in begins:  # one of the four begins a pass
        passes = [periods[place : place + 8] for place in range(begin, len(periods[:end]) - 8, 8)]
        if all(sorted(it for it, is_on in one if is_on) == [1, 2, 3, 4] for one in passes):
            break
    else:
        pytest.fail("no pass has all ON periods")
    assert all(sorted(it for it, is_on in one if not is_on) == [10, 20, 30, 40] for one in passes)
    pairs = {(one[place][0], one[place + 1][0]) for one in passes for place in range(0, 8, 2)}
    assert len(pairs) == 16, "every ON period meets every OFF period"


@pytest.mark.parametrize("is_shuffled", [False, True], ids=["recorded", "shuffled"])
def test_recorded_peers_are_stationary_from_the_beginning(is_shuffled: bool) -> None:
    """10 s of 110 s are ON, at every moment; the peers of one run are at different places."""
    trace = Trace(CYCLES_S, is_shuffled)
    counts = dict.fromkeys((0, 5, 77), 0)
    for seed in range(4000):
        changes = list(
            takewhile(lambda it: it[0] <= 77 * NS_PER_S, recorded_on_off(trace, stream(1, "on-off", f"s.{seed}")))
        )
        for second in counts:
            counts[second] += [is_on for time_ns, is_on in changes if time_ns <= second * NS_PER_S][-1]
    for second, count in counts.items():
        assert count == pytest.approx(4000 / 11, abs=4 * (4000 * 10 / 121) ** 0.5), second


@dataclass(frozen=True)
class Times:
    times_ns: tuple[int, ...]

    @property
    def pass_ns(self) -> int:
        return self.times_ns[-1]


def test_recorded_times_repeat_from_a_random_place() -> None:
    times = Times((NS_PER_S, 3 * NS_PER_S, 4 * NS_PER_S))
    firsts = []
    for seed in range(400):
        found = [time_ns for time_ns, _ in islice(messages(seed, "p", 0.75, times), 12)]
        firsts.append(found[0] / NS_PER_S)
        gaps = [(after - before) // NS_PER_S for before, after in pairwise(found)]
        assert gaps in [([1, 1, 2] * 5)[begin : begin + 11] for begin in range(3)]
    assert statistics.fmean(firsts) == pytest.approx((1 + 1 + 4) / (2 * 4), abs=4 * 0.5 / 400**0.5)
