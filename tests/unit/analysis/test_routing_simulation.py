"""The routing models against a simulation of their assumptions that shares no formula with them.

Subscriptions with fixed (not exponential) lifetimes come and go on a small lopsided tree; entries, toggles and
notifications are counted by definition. It also shows that only the mean of the lifetime matters.
"""

import heapq
import random

import numpy as np
import pytest

from brokerbed.analysis.models.contract import Classes, Interest
from brokerbed.analysis.models.registry import MODELS
from brokerbed.scenario import topology

TREE = topology.explicit({"r": None, "a": "r", "b": "a", "c": "a", "d": "r", "e": "d"})
ARRIVAL_RATE = [0.05, 0.10, 0.20, 0.0, 0.02, 0.15]
LIFETIME_S = [4.0, 3.0, 2.0, 1.0, 10.0, 1.5]
PUBLICATION_RATE = [0.5, 0.0, 1.0, 2.0, 0.25, 0.5]
MODEL_S = 60_000.0


def simulate(seed: int) -> dict[str, float]:
    draw = random.Random(seed)
    parents = TREE.parents.tolist()
    paths = [[v] for v in range(len(TREE))]
    for v in range(1, len(TREE)):
        paths[v] = [v, *paths[parents[v]]]
    below = [0] * len(TREE)  # subscriptions in the subtree of v
    events = [
        (draw.expovariate(rate), number, "arrive", v)
        for number, (v, rate) in enumerate(zip(range(6), ARRIVAL_RATE, strict=True))
        if rate
    ]
    events += [(draw.expovariate(rate), 10 + v, "publish", v) for v, rate in enumerate(PUBLICATION_RATE) if rate]
    heapq.heapify(events)
    sequence, last = 100, 0.0
    out = dict.fromkeys(("remote", "identity", "simple", "notifications", "additional"), 0.0)
    while events[0][0] < MODEL_S:
        now, _, kind, v = heapq.heappop(events)
        out["remote"] += (now - last) * sum(count > 0 for count in below[1:])
        last = now
        sequence += 1
        if kind == "publish":
            up = paths[v][:-1]
            out["additional"] += sum(below[u] == 0 for u in up)
            out["notifications"] += len(up) + sum(below[u] > 0 for u in range(1, 6) if u not in up)
            heapq.heappush(events, (now + draw.expovariate(PUBLICATION_RATE[v]), sequence, kind, v))
            continue
        change = 1 if kind == "arrive" else -1
        for u in paths[v]:
            below[u] += change
            if u:
                out["simple"] += 1
                out["identity"] += below[u] == (1 if change == 1 else 0)
        if kind == "arrive":
            heapq.heappush(events, (now + LIFETIME_S[v], sequence, "leave", v))
            heapq.heappush(events, (now + draw.expovariate(ARRIVAL_RATE[v]), sequence + 1_000_000_000, kind, v))
    return {name: value / MODEL_S for name, value in out.items()}


def test_models_against_simulation() -> None:
    measured = simulate(seed=3)
    column = np.array(ARRIVAL_RATE).reshape(-1, 1)
    active = column * np.array(LIFETIME_S).reshape(-1, 1)
    published = np.array(PUBLICATION_RATE).reshape(-1, 1)
    classes = Classes(np.ones(1), Interest.poisson(column, active), 0 * column, 0 * column, published)
    identity, simple = MODELS["identity"].traffic(TREE, classes, None), MODELS["simple"].traffic(TREE, classes, None)
    assert float(identity.entries_for_child.sum()) == pytest.approx(measured["remote"], rel=0.02)
    assert float(identity.control.sum()) == pytest.approx(measured["identity"], rel=0.02)
    assert float(simple.control.sum()) == pytest.approx(measured["simple"], rel=0.02)
    assert float((identity.up + identity.down).sum()) == pytest.approx(measured["notifications"], rel=0.02)
    assert float(identity.additional.sum()) == pytest.approx(measured["additional"], rel=0.02)
