"""Reads and checks the part `[placement]` of a broker's configuration file, see docs/broker.md."""

import random
from typing import Any

from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.values import NS_PER_S

PERIOD_NS_MAX = 2**62  # some 146 years
COUNTS = ("moves", "iterations", "tenure")
WEIGHTS = ("alpha", "beta", "link_cost", "broker_cost")
KEYS = ("period_s", *COUNTS, *WEIGHTS, "gain", "links", "brokers", "seed")


class PlacementError(ValueError):
    """The settings cannot be used; the text is a sentence."""


def placement_config(given: Any, routing: str, broker_id: str) -> PlacementConfig:
    """The settings of adaptive placement. Raises PlacementError for what cannot be used."""
    if not ALGORITHMS[routing].lets_links_move:
        names = [name for name, algorithm in ALGORITHMS.all.items() if algorithm.lets_links_move]
        raise PlacementError(f"links move under {' and '.join(names)} routing, not under {routing}")
    if not isinstance(given, dict) or "period_s" not in given:
        raise PlacementError(f"like {{period_s = 60.0}}, not {given}")
    for key in given:
        if key not in KEYS:
            raise PlacementError(f"unknown key {key}; known are {', '.join(KEYS)}")
    period_s, gain, seed = given["period_s"], given.get("gain", PlacementConfig.gain), given.get("seed", 1)
    if not _is_number(period_s) or not 1 <= period_s * NS_PER_S <= PERIOD_NS_MAX:
        raise PlacementError(f"period_s must be a number above 0, not {period_s}")
    if not _is_number(gain) or not 0 <= gain < 1:
        raise PlacementError(f"gain must be a number of at least 0 and below 1, not {gain}")
    if isinstance(seed, bool) or not isinstance(seed, int | str):
        raise PlacementError(f"seed must be a whole number or text, not {seed}")
    chosen: dict[str, Any] = {key: _count(key, given[key]) for key in COUNTS if key in given}
    chosen |= {key: _cost(key, given[key]) for key in WEIGHTS if key in given}
    return PlacementConfig(
        random.Random(f"{seed} {broker_id} placement"),  # noqa: S311  # not a secret
        round(period_s * NS_PER_S),
        gain=float(gain),
        **chosen,
        link_costs=_link_costs(given.get("links", [])),
        broker_costs=_broker_costs(given.get("brokers", {})),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlacementError(f"{key} must be a whole number of at least 1, not {value}")
    return value


def _cost(key: str, value: Any) -> float:
    if not _is_number(value) or not 0 <= value < float("inf"):
        raise PlacementError(f"{key} must be a number that is not negative, not {value}")
    return float(value)


def _link_costs(given: Any) -> dict[frozenset[str], float]:
    costs: dict[frozenset[str], float] = {}
    for each in given if isinstance(given, list) else [given]:
        ends = each.get("between") if isinstance(each, dict) else None
        are_names = isinstance(ends, list) and all(isinstance(name, str) for name in ends)
        if not are_names or len(set(ends or ())) != 2 or set(each) != {"between", "cost"}:
            raise PlacementError(f'links: a list like [{{between = ["b1", "b3"], cost = 4}}], not {given}')
        costs[frozenset(ends or ())] = _cost(f"links: the cost between {' and '.join(ends or ())}", each["cost"])
    return costs


def _broker_costs(given: Any) -> dict[str, float]:
    if not isinstance(given, dict):
        raise PlacementError(f"brokers: like {{b2 = 3}}, not {given}")
    return {name: _cost(f"brokers: the cost of {name}", cost) for name, cost in given.items()}
