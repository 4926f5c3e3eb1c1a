"""The scenario file: `load` turns it into an Experiment of frozen Scenarios, or raises one ScenarioError."""

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.routing.strategy import Advertising, Algorithm
from brokerbed.scenario.errors import ScenarioError
from brokerbed.scenario.format import Fault, Link, Publisher, Service, Subscriber
from brokerbed.scenario.law import Law
from brokerbed.scenario.loader import load, load_at, schema
from brokerbed.scenario.model import Churn, Experiment, Publications, Scenario, Subscriptions
from brokerbed.topics import is_wildcard, matches

__all__ = [
    "ALGORITHMS", "Advertising", "Algorithm", "Churn", "Experiment", "Fault", "Law", "Link", "Publications",
    "Publisher", "Scenario", "ScenarioError", "Service", "Subscriber", "Subscriptions", "is_wildcard", "load",
    "load_at", "matches", "schema",
]  # fmt: skip
