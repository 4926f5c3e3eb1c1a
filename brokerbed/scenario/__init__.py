"""The scenario file: `load` turns it into an Experiment of frozen Scenarios, or raises one ScenarioError."""

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.routing.strategy import Advertising, Algorithm
from brokerbed.scenario.errors import ScenarioError
from brokerbed.scenario.format import Fault, Link, Service
from brokerbed.scenario.law import Law
from brokerbed.scenario.loader import has_sweep, load, load_at, schema
from brokerbed.scenario.model import Experiment, Publications, Scenario
from brokerbed.scenario.peers import Peer, Publisher, Requester, Responder, Subscriber
from brokerbed.scenario.subscriptions import Churn, Population, Subscriptions
from brokerbed.topics import is_wildcard, matches

__all__ = [
    "ALGORITHMS", "Advertising", "Algorithm", "Churn", "Experiment", "Fault", "Law", "Link", "Peer", "Population",
    "Publications", "Publisher", "Requester", "Responder", "Scenario", "ScenarioError", "Service", "Subscriber",
    "Subscriptions", "has_sweep", "is_wildcard", "load", "load_at", "matches", "schema",
]  # fmt: skip
