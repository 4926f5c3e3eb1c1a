"""The peers of a scenario file: publishers, subscribers, requesters and responders."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from brokerbed.scenario.document import shown
from brokerbed.scenario.law import DurationOrLaw, Law
from brokerbed.scenario.part import Name, Part, Qos, problem
from brokerbed.scenario.recorded import Arrivals, Connectivity
from brokerbed.scenario.units import NS_PER_S, RatePerS
from brokerbed.topics import REPLIES


class Peer(Part):
    """What all peers have in common."""

    id: Name
    broker: Name
    topic: Annotated[str, Field(strict=True)]
    qos: Qos = 1

    @property
    def places(self) -> tuple[str, ...]:
        """The brokers at which it is at one time or another."""
        return (self.broker,)


def _several_brokers(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise problem(f"must be a list of at least two brokers, like [b3, b7, b9], not {shown(value)}")
    return value


_BROKERS_SCHEMA = {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True}
Brokers = Annotated[tuple[Name, ...], BeforeValidator(_several_brokers), WithJsonSchema(_BROKERS_SCHEMA)]


def _one_or_several_brokers(schema: dict[str, Any]) -> None:
    """Completes the JSON Schema: a peer is at one broker, or roams between several."""
    for key in ("broker", "brokers"):
        schema["properties"][key].pop("default")
    is_intermittent = {"anyOf": [{"required": ["on", "off"]}, {"required": ["connectivity"]}]}
    roams = {"required": ["brokers"], **is_intermittent}
    schema.setdefault("allOf", []).append({"oneOf": [{"required": ["broker"]}, roams]})


class IntermittentPeer(Peer):
    """What publishers and subscribers have in common."""

    model_config = ConfigDict(json_schema_extra=_one_or_several_brokers)
    broker: Name = ""  # empty for a peer that roams, which is at no broker in particular
    brokers: Brokers = ()  # a peer that roams comes back at another one of these after every OFF period
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

    @model_validator(mode="after")
    def _one_broker_or_several(self) -> Self:
        if self.broker and self.brokers:
            raise problem("broker and brokers do not go together; leave out one of them", "brokers")
        if not self.broker and not self.brokers:
            raise problem("is required, as in broker: b3; or brokers, as in brokers: [b3, b7, b9]", "broker")
        if self.brokers and not self.is_intermittent:
            raise problem(
                "brokers needs on and off, or connectivity: a peer comes back at another broker after it was OFF",
                "brokers",
            )
        return self

    @property
    def roams(self) -> bool:
        """Whether it comes back at another broker after every OFF period."""
        return bool(self.brokers)

    @property
    def places(self) -> tuple[str, ...]:
        return self.brokers or (self.broker,)

    @property
    def returns_per_s(self) -> float:
        """How often a peer that is intermittent comes back."""
        if self.connectivity is not None:
            return len(self.connectivity.cycles_ns) * NS_PER_S / self.connectivity.pass_ns
        assert self.on is not None
        assert self.off is not None
        return NS_PER_S / (self.on.mean + self.off.mean)

    @property
    def off_mean_s(self) -> float:
        """The mean OFF period of a peer that is intermittent."""
        return 1 / self.returns_per_s - self.on_mean_ns / NS_PER_S

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
    _one_or_several_brokers(schema)
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
