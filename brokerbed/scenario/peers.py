"""The peers of a scenario file: publishers, subscribers, requesters and responders."""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from brokerbed.scenario.law import DurationOrLaw, Law
from brokerbed.scenario.part import Name, Part, Qos, problem
from brokerbed.scenario.recorded import Arrivals, Connectivity
from brokerbed.scenario.units import RatePerS
from brokerbed.topics import REPLIES


class Peer(Part):
    """What all peers have in common."""

    id: Name
    broker: Name
    topic: Annotated[str, Field(strict=True)]
    qos: Qos = 1


class IntermittentPeer(Peer):
    """What publishers and subscribers have in common."""

    on: Law | None = None
    off: Law | None = None
    connectivity: Connectivity | None = None  # recorded, instead of on and off
    service: Law | None = None

    @model_validator(mode="after")
    def _on_and_off_go_together(self) -> Self:
        if self.connectivity is not None and (self.on is not None or self.off is not None):
            raise problem("connectivity and on/off do not go together; leave out one of them", "connectivity")
        if (self.on is None) != (self.off is None):
            raise problem("on and off go together; leave out both for a peer that is always connected",
                          "on" if self.on else "off")  # fmt: skip
        return self

    @property
    def is_intermittent(self) -> bool:
        """Whether it connects and disconnects by itself."""
        return self.on is not None or self.connectivity is not None

    @property
    def on_mean_ns(self) -> float:
        """The mean ON period of a peer that is intermittent."""
        if self.connectivity is not None:
            return self.connectivity.on_mean_ns
        assert self.on is not None
        return self.on.mean


def _rate_or_arrivals(schema: dict[str, Any]) -> None:
    """Completes the JSON Schema: there is exactly one of the two."""
    schema["properties"]["rate"].pop("default")
    schema["oneOf"] = [{"required": ["rate"]}, {"required": ["arrivals"]}]


class Publisher(IntermittentPeer):
    """A publisher, and in general a stream of numbered messages to one topic.

    The answers of responder r to requester q are a stream with the id `r/q`, as no name has a slash; an answer has the
    number of its request.
    """

    model_config = ConfigDict(json_schema_extra=_rate_or_arrivals)
    example = "{id: p1, broker: b3, topic: metro/4, rate: 1/s}"
    rate: RatePerS = 0.0  # with arrivals, a Scenario has their mean rate here
    arrivals: Arrivals | None = None  # recorded, instead of a rate
    expiry: DurationOrLaw | None = None  # the lifetime of its messages, from their publication

    @model_validator(mode="after")
    def _rate_or_arrivals(self) -> Self:
        if "rate" in self.model_fields_set and self.arrivals is not None:
            raise problem("rate and arrivals do not go together; leave out one of them", "arrivals")
        if "rate" not in self.model_fields_set and self.arrivals is None:
            raise problem("is required, as in rate: 1/s; or arrivals, as in arrivals: {trace: calls.csv}", "rate")
        return self

    @property
    def sender(self) -> str:
        """The peer that sends the stream."""
        return self.id.partition("/")[0]

    @property
    def cause(self) -> str:
        """The peer whose process of arrivals makes the messages: of answers, the requester."""
        return self.id.rpartition("/")[2]


class Subscriber(IntermittentPeer):
    example = "{id: s1, broker: b9, topic: metro/4}"
    session_service: Law | None = None


class Requester(Peer):
    example = "{id: q1, broker: b3, topic: ask, rate: 1/s}"
    rate: RatePerS

    @property
    def requests(self) -> Publisher:
        return Publisher.model_construct(id=self.id, broker=self.broker, topic=self.topic, rate=self.rate, qos=self.qos)

    @property
    def inbox(self) -> Subscriber:
        """What it receives: the answers."""
        return Subscriber.model_construct(
            id=self.id, broker=self.broker, topic=REPLIES.replace("+", self.id), qos=self.qos
        )


class Responder(Peer):
    example = "{id: r1, broker: b9, topic: ask, service: {mean: 50ms}}"
    service: Law | None = None

    @property
    def inbox(self) -> Subscriber:
        """What it receives: the requests."""
        return Subscriber.model_construct(
            id=self.id, broker=self.broker, topic=self.topic, service=self.service, qos=self.qos
        )

    def answers_to(self, requester: Requester) -> Publisher:
        stream = f"{self.id}/{requester.id}"
        return Publisher.model_construct(
            id=stream, broker=self.broker, topic=requester.inbox.topic, rate=requester.rate, qos=self.qos
        )
