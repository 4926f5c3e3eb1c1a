"""How many messages sessions take along when they follow peers that roam.

A session moves at the end of an OFF period, with all that waits in it. With exponential ON periods the queue at the end
of one is on average the queue that is seen during ON: the end comes at any moment equally likely. With Poisson arrivals
that is known from the mean queue over all time, L = lambda R (Little): during OFF the queue is longer by the arrivals
since its begin, lambda E[OFF^2] / (2 E[OFF]) on average. So the queue at the end of OFF is

    lambda R - lambda P(OFF) E[OFF^2] / (2 E[OFF]) + lambda E[OFF]

Without service times nothing waits at the end of ON, and what moves is what came during OFF, whatever the arrivals.
"""

from collections.abc import Sequence
from math import isnan

from brokerbed.analysis.peer_queues import Arrivals, PeerQueues
from brokerbed.analysis.placements import mean_links
from brokerbed.analysis.queues import NAN, Queue, centre_of
from brokerbed.analysis.roaming import those_who_roam
from brokerbed.scenario import Scenario, Subscriber


def moved_per_s(scenario: Scenario, stages: Sequence[Queue]) -> float:
    """Over all links and all copies of the peers; nan if it is not known."""
    sessions = {queue.at: queue for queue in stages if queue.stage == "session"}
    arrivals = PeerQueues(scenario).arrivals
    total = 0.0
    for subscriber in those_who_roam(scenario.subscribers):
        session = sessions.get(subscriber.id)
        waiting = NAN if session is None else waiting_at_move(subscriber, session, arrivals[subscriber.id])
        total += waiting * subscriber.returns_per_s * mean_links(scenario, subscriber)
    return scenario.copies * total


def waiting_at_move(subscriber: Subscriber, session: Queue, arrivals: Arrivals) -> float:
    """The mean number of messages in the session at the end of an OFF period."""
    if arrivals.rate_per_s == 0:
        return 0.0
    if session.expires or isnan(session.response_s) or (arrivals.some_at_qos0 and arrivals.some_above_qos0):
        return NAN
    off_s = subscriber.off_mean_s
    if subscriber.session_service is None:
        return 0.0 if arrivals.some_at_qos0 else arrivals.rate_per_s * off_s
    is_simple = subscriber.on is not None and subscriber.on.law == "exponential"
    if not is_simple or arrivals.is_bursty or arrivals.from_intermittent or arrivals.some_at_qos0:
        return NAN
    residual_s = centre_of(subscriber.session_service, subscriber.on, subscriber.off).residual_off_s
    return arrivals.rate_per_s * (session.response_s - residual_s + off_s)
