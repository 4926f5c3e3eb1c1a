"""Requesters and responders: request and response as MQTT 5 has them, with Response Topic and Correlation Data.

They are always connected and keep their sessions. A responder serves requests one after the other, and answers to the
Response Topic of a request with its Correlation Data; a requester accepts an answer only with the Correlation Data of
its request. A responder also answers requests of strangers, which are not part of the experiment.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from brokerbed.broker.values import Properties
from brokerbed.clients.boxes import Arrived, Inbox, Outbox, Stream
from brokerbed.clients.parts.peers import ConnectedPeer, PublishingPeer
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.peers import Publisher, Subscriber
from brokerbed.scenario.workload import WorkloadPart
from brokerbed.topics import ADVERTISE, REPLIES

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd


class RequestingPeer(PublishingPeer):
    """A peer that publishes requests, and receives the answers."""

    def __init__(self, crowd: "Crowd", requests: Publisher, inbox: Subscriber) -> None:
        super().__init__(crowd, requests)
        self._answer_topic = inbox.topic
        self.inbox = _Answers(crowd, self.client, inbox, None)

    def properties_of(self, number: int) -> Properties:
        return Properties(
            response_topic=self._answer_topic, correlation_data=_correlation_data(self._stream.id, number)
        )


class RespondingPeer(ConnectedPeer):
    """A peer that answers requests."""

    def __init__(self, crowd: "Crowd", inbox: Subscriber, answer_topics: str) -> None:
        super().__init__(crowd, inbox)
        if crowd.scenario.algorithm.advertises:
            self.client.subscribe(ADVERTISE + answer_topics, inbox.qos)
        self.outbox = Outbox(crowd, self.client, None)
        self.inbox = _Requests(crowd, self, inbox)

    def answer(self, request: Arrived, time_ns: int) -> None:
        """A message without Response Topic is no request, and has no answer."""
        topic = request.properties.response_topic
        if topic is None:
            return
        assert self.outbox is not None
        properties = Properties(correlation_data=request.properties.correlation_data)
        if request.recorder is None:
            self.outbox.put_unlogged(topic, request.payload, self.peer.qos, time_ns, properties)
            return
        stream = f"{self.peer.id}/{request.recorder.publisher}"
        self.outbox.put(Stream(stream, topic, self.peer.qos), request.number, time_ns, properties)


class _Answers(Inbox):
    """The inbox of a requester."""

    def processed(self, arrived: Any, time_ns: int) -> None:
        is_ours = arrived.properties.correlation_data == _correlation_data(self._peer.id, arrived.number)
        is_answer = "/" in arrived.recorder.publisher
        if is_ours or not is_answer:  # others may publish to its topic, too
            super().processed(arrived, time_ns)


class _Requests(Inbox):
    """The inbox of a responder."""

    def __init__(self, crowd: "Crowd", responder: RespondingPeer, inbox: Subscriber) -> None:
        super().__init__(crowd, responder.client, inbox, crowd.demand(inbox.service, "responder", inbox.id))
        self._responder = responder

    def takes_unidentified(self, properties: Properties) -> bool:
        return properties.response_topic is not None

    def processed(self, arrived: Any, time_ns: int) -> None:
        if arrived.recorder is not None:
            super().processed(arrived, time_ns)
        self._responder.answer(arrived, time_ns)


def _correlation_data(requester: str, number: int) -> bytes:
    return f"{requester} {number}".encode()


def _actors(scenario: Scenario, _: None) -> list[Callable[..., Any]]:
    copies, copy_of = range(scenario.copies), scenario.copy_of
    return [
        *(
            partial(RequestingPeer, requests=copy_of(peer.requests, copy), inbox=copy_of(peer.inbox, copy))
            for peer in scenario.requesters
            for copy in copies
        ),
        *(
            partial(
                RespondingPeer,
                inbox=copy_of(peer.inbox, copy),
                answer_topics=scenario.topic_of_copy(REPLIES, copy),
            )
            for peer in scenario.responders
            for copy in copies
        ),
    ]


PART = WorkloadPart("requests", "Requesters and responders, with Response Topic and Correlation Data.", _actors)
