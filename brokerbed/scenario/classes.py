"""The keys of a scenario file about filter classes: `classes`, `subscriptions` and `publications`."""

from typing import Annotated, Any, Self

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
from brokerbed.scenario.part import Name, Part, Qos, problem
from brokerbed.scenario.units import RateOrZeroPerS

CLASSES_MAX = 1_000_000  # topics class/000000 ... class/999999
ALL, LEAVES = "all", "leaves"

ClassCount = Annotated[int, Field(strict=True, ge=1, le=CLASSES_MAX)]
ClassNumber = Annotated[int, Field(strict=True, ge=0, alias="class")]
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


class SubscriptionsAt(Part):
    example = "{broker: b3, class: 17, arrival_rate: 0.2/s, lifetime: {mean: 30s}}"
    broker: Name
    class_: ClassNumber
    arrival_rate: RateOrZeroPerS
    lifetime: Law | None = None


class Wide(Part):
    """Subscriptions to all classes of a group."""

    example = "{mean_active: 50}"
    mean_active: MeanActive


class Subscriptions(Part):
    example = "{mean_active: 10000, lifetime: {mean: 60s}}"
    mean_active: MeanActive = 0.0
    lifetime: Law | None = None
    where: Where = ALL
    wide: Wide | None = None
    at: tuple[SubscriptionsAt, ...] = ()
    qos: Qos = 0

    @model_validator(mode="after")
    def _lifetime_is_known(self) -> Self:
        is_spread = self.mean_active or self.wide is not None
        if self.lifetime is None and (is_spread or any(entry.lifetime is None for entry in self.at)):
            raise problem("is required, as in lifetime: {mean: 60s}", "lifetime")
        return self


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
    at: tuple[PublicationsAt, ...] = ()
    qos: Qos = 0

    @model_validator(mode="after")
    def _sources_have_a_rate(self) -> Self:
        if self.sources is not None and "rate" not in self.model_fields_set and not self.at:
            raise problem("sources need a rate, as in rate: 10/s, at which they publish while they are on", "sources")
        return self
