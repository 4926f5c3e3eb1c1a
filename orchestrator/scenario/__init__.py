"""The scenario file: `load` turns it into an Experiment of frozen Scenarios, or raises one ScenarioError."""

from broker.routing.filters import is_wildcard, matches
from orchestrator.scenario.errors import ScenarioError
from orchestrator.scenario.format import Fault, Law, Link, Publisher, Service, Subscriber
from orchestrator.scenario.loader import load, load_at, schema
from orchestrator.scenario.model import Churn, Experiment, Publications, Scenario, Subscriptions, class_topic

__all__ = [
    "Churn", "Experiment", "Fault", "Law", "Link", "Publications", "Publisher", "Scenario", "ScenarioError", "Service",
    "Subscriber", "Subscriptions", "class_topic", "is_wildcard", "load", "load_at", "matches", "schema",
]  # fmt: skip
