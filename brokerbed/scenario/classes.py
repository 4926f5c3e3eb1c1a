"""The keys of a scenario file about filter classes: `classes`, `subscriptions` and `publications`."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    PlainValidator,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from brokerbed.scenario.document import shown
from brokerbed.scenario.law import Law
from brokerbed.scenario.part import Count, Name, Part, Qos, problem
from brokerbed.scenario.profile import Profile
from brokerbed.scenario.units import DurationNs, Fraction, RateOrZeroPerS

CLASSES_MAX = 1_000_000  # topics class/000000 ... class/999999
CLIENTS_MAX = 1_000_000  # of one broker and class
ALL, LEAVES = "all", "leaves"

ClassCount = Annotated[int, Field(strict=True, ge=1, le=CLASSES_MAX)]
ClassNumber = Annotated[int, Field(strict=True, ge=0, alias="class")]
ClientCount = Annotated[int, Field(strict=True, ge=0, le=CLIENTS_MAX)]
MeanActive = Annotated[float, Field(strict=True, ge=0, le=1e12)]


class Classes(Part):
    """How many filter classes there are, and in how many groups."""

    example = "{count: 1000, groups: 100}"
    count: ClassCount = 1
    groups: ClassCount | None = None

    @model_validator(mode="after")
    def _every_group_has_a_class(self) -> Self:
        if self.groups is not None and self.groups > self.count:
            raise problem(f"must be at most the number of classes ({self.count}), not {self.groups}", "groups")
        return self


_COUNT = TypeAdapter(ClassCount)


def _count_or_mapping(value: Any, handler: ValidatorFunctionWrapHandler) -> Classes:
    if isinstance(value, dict | Classes):
        classes: Classes = handler(value)
        return classes
    return Classes(count=_COUNT.validate_python(value))


ClassesSection = Annotated[
    Classes,
    WrapValidator(_count_or_mapping),
    WithJsonSchema({"anyOf": [_COUNT.json_schema(), Classes.model_json_schema()]}),
]


def _places(value: Any) -> str | tuple[str, ...]:
    if value in (ALL, LEAVES):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str | int) for name in value):
        return tuple(map(str, value))
    raise problem(f"must be {ALL}, {LEAVES}, or a list of brokers like [b3, b4], not {shown(value)}")


Where = Annotated[
    str | tuple[str, ...],
    PlainValidator(_places),
    WithJsonSchema({"anyOf": [{"enum": [ALL, LEAVES]}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class Population(Part):
    """Clients that come and go, for each broker and class."""

    example = "{size: 8, on: {mean: 1min}, off: {mean: 20min}}"
    size: ClientCount
    on: Law
    off: Law


class PopulationAt(Part):
    """The clients of one broker and class, with the periods of `subscriptions.population` unless it has its own."""

    example = "{size: 8}"
    size: ClientCount
    on: Law | None = None
    off: Law | None = None


class Static(Part):
    """Subscribers at some leaves of the tree, for each class."""

    example = "{count: 9, place: worst}"
    count: Count
    place: Literal["best", "worst", "random"]
    redraw: DurationNs | None = None

    @model_validator(mode="after")
    def _only_random_leaves_are_drawn(self) -> Self:
        if self.redraw is not None and self.place != "random":
            raise problem(f"redraw goes with place: random, not with place: {self.place}", "redraw")
        return self


class SubscriptionsAt(Part):
    example = "{broker: b3, class: 17, arrival_rate: 0.2/s, lifetime: {mean: 30s}}"
    broker: Name
    class_: ClassNumber
    arrival_rate: RateOrZeroPerS | None = None
    lifetime: Law | None = None
    population: PopulationAt | None = None

    @model_validator(mode="after")
    def _arrives_or_is_there(self) -> Self:
        if self.population is None and self.arrival_rate is None:
            raise problem("is required, as in arrival_rate: 0.2/s, unless there is a population", "arrival_rate")
        if self.population is not None:
            for key in ("arrival_rate", "lifetime"):
                if getattr(self, key) is not None:
                    raise problem(f"population and {key} exclude each other", key)
        return self


class Wide(Part):
    """Subscriptions to all classes of a group."""

    example = "{mean_active: 50}"
    mean_active: MeanActive


class Subscriptions(Part):
    example = "{mean_active: 10000, lifetime: {mean: 60s}}"
    mean_active: MeanActive = 0.0
    population: Population | None = None
    static: Static | None = None
    lifetime: Law | None = None
    where: Where = ALL
    roam: Fraction = 0.0
    wide: Wide | None = None
    profile: Profile | None = None
    at: tuple[SubscriptionsAt, ...] = ()
    qos: Qos = 0

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        is_given = {
            "population": self.population is not None, "static": self.static is not None, "roam": self.roam > 0,
            "mean_active": self.mean_active > 0, "where": "where" in self.model_fields_set,
            "profile": self.profile is not None,
        }  # fmt: skip
        for key, other in _EXCLUSIVE:
            if is_given[key] and is_given[other]:
                raise problem(f"{key} and {other} exclude each other", key)
        for entry in self.at:
            if entry.population is None:
                continue
            for key in ("roam", "profile"):
                if is_given[key]:
                    raise problem(f"{key} and a population (at {entry.broker}) exclude each other", key)
            if self.population is None and (entry.population.on is None or entry.population.off is None):
                raise problem(
                    f"the population at {entry.broker} needs on and off, as in {Population.example},"
                    " unless subscriptions.population has them", "at"
                )  # fmt: skip
        if is_given["where"] and not self.model_fields_set & {"mean_active", "population", "wide", "roam"}:
            raise problem(
                "where needs subscriptions that are spread over these brokers, as in mean_active: 100", "where"
            )
        self._subscriptions_arrive()
        return self

    @model_validator(mode="after")
    def _lifetime_is_known(self) -> Self:
        is_spread = self.mean_active or self.wide is not None or (self.roam and self.at)
        arriving = [entry for entry in self.at if entry.population is None]
        if self.lifetime is None and (is_spread or any(entry.lifetime is None for entry in arriving)):
            raise problem("is required, as in lifetime: {mean: 60s}", "lifetime")
        return self

    def _subscriptions_arrive(self) -> None:
        """Complains about keys that would have no effect without subscriptions that arrive."""
        if self.wide is not None or any(entry.population is None for entry in self.at):
            return
        if self.profile is not None and not self.mean_active:
            raise problem("a profile needs subscriptions that arrive, as in mean_active: 100", "profile")
        if self.roam and "mean_active" not in self.model_fields_set:
            raise problem("roam needs subscriptions that arrive, as in mean_active: 100", "roam")


_EXCLUSIVE = (
    ("population", "mean_active"),
    ("static", "mean_active"),
    ("static", "population"),
    ("static", "where"),
    ("roam", "population"),
    ("roam", "static"),
    ("profile", "population"),
    ("profile", "static"),
    ("profile", "roam"),
)


class PublicationsAt(Part):
    example = "{broker: b5, class: 17, rate: 3/s}"
    broker: Name
    class_: ClassNumber
    rate: RateOrZeroPerS


class Sources(Part):
    """When the publisher of each broker and class is there."""

    example = "{on: {mean: 30s}, off: {mean: 30s}}"
    on: Law
    off: Law

    @property
    def share_on(self) -> float:
        return self.on.mean / (self.on.mean + self.off.mean)


class Publications(Part):
    example = "{rate: 1000/s}"
    rate: RateOrZeroPerS = 0.0
    where: Where = ALL
    sources: Sources | None = None
    profile: Profile | None = None
    at: tuple[PublicationsAt, ...] = ()
    qos: Qos = 0

    @model_validator(mode="after")
    def _there_is_a_rate(self) -> Self:
        has_rate = "rate" in self.model_fields_set or self.at
        if self.sources is not None and not has_rate:
            raise problem("sources need a rate, as in rate: 10/s, at which they publish while they are on", "sources")
        if self.profile is not None and not has_rate:
            raise problem("a profile needs a rate, as in rate: 10/s", "profile")
        if "where" in self.model_fields_set and "rate" not in self.model_fields_set:
            raise problem("where needs a rate, as in rate: 10/s, which is spread over these brokers", "where")
        return self
