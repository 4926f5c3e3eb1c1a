"""Version 1 of the scenario file: its keys, types, units and defaults, as pydantic models.

What one mapping can say about itself is checked here; what needs the whole scenario (does broker b3 exist?) is
checked in resolve.py. A key given as null counts as absent, so that a sweep can take a key away.
"""

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from brokerbed.scenario import topology
from brokerbed.scenario.adaptive import PlacementSection
from brokerbed.scenario.classes import Classes, ClassesSection, Publications, Subscriptions
from brokerbed.scenario.costs import CostsSection
from brokerbed.scenario.document import shown
from brokerbed.scenario.faults.contract import FaultKind
from brokerbed.scenario.faults.registry import FAULTS
from brokerbed.scenario.law import Law, fixed_or_law
from brokerbed.scenario.part import (
    NAME,
    NAME_CHARACTERS_MAX,
    BrokerPair,
    Count,
    FileName,
    Name,
    Part,
    problem,
    reject_bool,
)
from brokerbed.scenario.peers import Publisher, Requester, Responder, Subscriber
from brokerbed.scenario.routing import Routing, RoutingSection
from brokerbed.scenario.units import (
    BandwidthBitPerS,
    DurationNs,
    DurationOrZeroNs,
    Fraction,
    SizeBytes,
    parse_duration_ns,
    parse_fraction,
)
from brokerbed.scenario.workload import WORKLOAD

COPIES_MAX = 100_000  # of all peers; each is a session of its own
PAYLOAD_BYTES_MAX = 268_000_000  # MQTT's largest packet is 268 435 455 bytes, headers included
LONGEST_EXAMPLE = "{warmup: 120s, until: 1%, at_most: 4h}"
LONGER_MAX = 20  # how much longer than clock.measure --until measures at most, if the file has no clock.at_most


BrokerCount = Annotated[int, Field(strict=True, ge=1, le=topology.BROKERS_MAX)]


AUTO = "auto"


class LongestWarmup(int):
    """The warm-up of `warmup: auto`, whose end is found while the run goes: the longest that it may be."""


def _warmup(value: Any) -> int:
    return value if isinstance(value, LongestWarmup) else parse_duration_ns(value)


def _longest_warmup(clock: dict[str, Any]) -> LongestWarmup:
    try:
        return LongestWarmup(parse_duration_ns(clock.get("measure")))
    except PydanticCustomError:  # it is reported for that key
        return LongestWarmup(0)


Warmup = Annotated[
    int,
    PlainValidator(_warmup),
    WithJsonSchema({"anyOf": [{"const": AUTO}, TypeAdapter(DurationOrZeroNs).json_schema()]}),
]


class Clock(Part):
    example = "{warmup: 120s, measure: 600s}"
    warmup: Warmup = 0
    measure: DurationNs  # with `until`, the longest that is measured
    until: Fraction | None = None
    at_most: DurationNs | None = None
    speedup: Annotated[float, Field(strict=True, gt=0, le=1e6)] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _measure_or_until(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        given = {key for key in ("measure", "until", "at_most") if value.get(key) is not None}
        if given >= {"measure", "until"}:
            raise problem("until and measure do not go together; leave out one of them", "until")
        if given == {"until"}:
            raise problem(f"until needs a longest time, as in {LONGEST_EXAMPLE}", "until")
        if "at_most" in given and "until" not in given:
            raise problem(f"goes with until, as in {LONGEST_EXAMPLE}", "at_most")
        if "until" in given:
            value = value | {"measure": value["at_most"]}
        return value | {"warmup": _longest_warmup(value)} if value.get("warmup") == AUTO else value

    @model_validator(mode="after")
    def _until_something(self) -> Self:
        if self.until == 0:
            raise problem("must be more than 0%, as no measurement is exact", "until")
        return self

    @property
    def finds_warmup(self) -> bool:
        """Whether the end of the transient is found while the run goes; then `warmup` is the longest."""
        return isinstance(self.warmup, LongestWarmup)

    def going_on_until(self, half_width: float) -> "Clock":
        """The same clock for runs that end when every headline row is known to this part of its value."""
        at_most = self.at_most or LONGER_MAX * self.measure
        return self.model_copy(update={"until": half_width, "at_most": at_most, "measure": at_most})

    def measured(self, begin_ns: int, end_ns: int) -> "Clock":
        """The clock of a run that has measured from then to then."""
        return self.model_copy(update={"warmup": begin_ns, "measure": end_ns - begin_ns})


class Levels(Part):
    example = "{tree: levels, brokers: 127, width: 8}"
    tree: Literal["levels"]
    brokers: BrokerCount
    width: BrokerCount

    def build(self) -> topology.Tree:
        return topology.levels(self.brokers, self.width)


class Regular(Part):
    example = "{tree: regular, arity: 3, depth: 4}"
    tree: Literal["regular"]
    arity: BrokerCount
    depth: BrokerCount

    def build(self) -> topology.Tree:
        return topology.regular(self.arity, self.depth)


class Line(Part):
    example = "{tree: line, brokers: 5}"
    tree: Literal["line"]
    brokers: BrokerCount

    def build(self) -> topology.Tree:
        return topology.line(self.brokers)


class Star(Part):
    example = "{tree: star, brokers: 5}"
    tree: Literal["star"]
    brokers: BrokerCount

    def build(self) -> topology.Tree:
        return topology.star(self.brokers)


def _parent_pairs(value: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, dict) or not value:
        raise problem(f"must map every broker to its parent, like {{b0: null, b1: b0}}, not {shown(value)}")
    if len(value) > topology.BROKERS_MAX:
        raise problem(f"has {len(value)} brokers; at most {topology.BROKERS_MAX} are allowed")
    for broker, parent in value.items():
        for name in (broker, parent):
            if name is not None and not (isinstance(name, str | int) and NAME.fullmatch(str(name))):
                raise problem(f"{shown(name)} is no broker name (letters, digits, - and _)", broker)
            if len(str(name)) > NAME_CHARACTERS_MAX:
                raise problem(f"a broker name has at most {NAME_CHARACTERS_MAX} characters", broker)
    return tuple((broker, None if parent is None else str(parent)) for broker, parent in value.items())


class Explicit(Part):
    example = "{tree: explicit, parents: {b0: null, b1: b0}}"
    tree: Literal["explicit"]
    parents: Annotated[
        tuple[tuple[str, str | None], ...],
        BeforeValidator(_parent_pairs),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "null"]}, "minProperties": 1}),
    ]

    def build(self) -> topology.Tree:
        return topology.explicit(dict(self.parents))


Topology = Annotated[Levels | Regular | Line | Star | Explicit, Field(discriminator="tree")]


@lru_cache(maxsize=64)  # a sweep meets the same few trees again and again
def build_tree(spec: Levels | Regular | Line | Star | Explicit) -> topology.Tree:
    return spec.build()


class Service(Part):
    example = "{broker_in: {mean: 62.5ms}, link: {mean: 62.5ms}}"
    broker_in: Law | None = None
    link: Law | None = None


class Fault(Part):
    """One fault at a time `at`, or a nemesis that strikes `every` so often."""

    example = "{at: 120s, crash: b3, for: 20s}"
    at: DurationOrZeroNs | None = None
    every: Law | None = None
    if TYPE_CHECKING:
        for_: Law  # fault_model adds this key behind those of the kinds, so that errors come in this order

    @model_validator(mode="after")
    def _one_time_one_kind(self) -> Self:
        if (self.at is None) == (self.every is None):
            raise problem("a fault strikes either at a time (at: 120s) or again and again (every: {mean: 60s})")
        if sum(getattr(self, kind.name) is not None for kind in FAULTS.all.values()) != 1:
            raise problem(f"a fault does exactly one of {', '.join(FAULTS.all)}")
        for kind in FAULTS.all.values():
            options = self._options_of(kind)
            if options and kind.check_options is not None:
                kind.check_options(getattr(self, kind.name), **options)
        return self

    @property
    def kind(self) -> FaultKind:
        return next(kind for kind in FAULTS.all.values() if getattr(self, kind.name) is not None)

    @property
    def target(self) -> Any:
        """As the file names it: a broker, the ends of a link, a peer, or `any`."""
        return getattr(self, self.kind.name)

    @property
    def options(self) -> dict[str, Any]:
        """The further keys of its kind that are given."""
        return self._options_of(self.kind)

    def _options_of(self, kind: FaultKind) -> dict[str, Any]:
        return {key: value for key in kind.options if (value := getattr(self, key)) is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        """Its class is made by fault_model in every process, so pickle cannot find it by name."""
        return _unpickled_fault, (self.__getstate__(),)


@cache
def fault_model() -> type[Fault]:
    """A fault with the keys of all kinds that are registered. These are known when the first scenario is read."""
    fields: dict[str, Any] = {}
    for kind in FAULTS.all.values():
        for key, annotation in {kind.name: kind.target.annotation, **kind.options}.items():
            fields[key] = (annotation | None, None)
    fields["for_"] = (Annotated[Law, BeforeValidator(fixed_or_law), Field(alias="for")], ...)
    return create_model("Fault", __base__=Fault, __doc__=Fault.__doc__, **fields)


def _unpickled_fault(state: dict[Any, Any]) -> Fault:
    model = fault_model()
    fault = model.__new__(model)
    fault.__setstate__(state)
    return fault


def _fault(value: Any, _: ValidatorFunctionWrapHandler) -> Fault:
    return fault_model().model_validate(value)


class Limits(Part):
    example = "{messages: 100000, bytes: 64MB, policy: drop-oldest}"
    messages: Count = 100_000
    bytes: SizeBytes = 64_000_000
    policy: Literal["drop-oldest", "reject"] = "drop-oldest"


class Link(Part):
    example = "{between: [b1, b3], delay: {mean: 20ms}}"
    between: BrokerPair
    delay: Law | None = None
    bandwidth: BandwidthBitPerS | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.delay is None and self.bandwidth is None:
            raise problem("a link needs a delay or a bandwidth, as in delay: {mean: 20ms}")
        return self


class Tolerance(Part):
    """How far a measurement may be from its prediction, as a part of it; by the first word of the metric."""

    example = "{default: 2%, delay: 5%}"
    default: Fraction = 0.02
    table: Fraction | None = None
    rate: Fraction | None = None
    delay: Fraction | None = None
    delivery: Fraction | None = None
    link: Fraction | None = None
    cost: Fraction | None = None

    def of(self, metric: str) -> float:
        family = metric.partition(".")[0]
        specific: float | None = getattr(self, family) if family in Tolerance.model_fields else None
        return self.default if specific is None else specific


_TOLERANCE = {"anyOf": [TypeAdapter(Fraction).json_schema(), Tolerance.model_json_schema()]}


def _one_for_all(value: Any) -> Any:
    return value if isinstance(value, dict | Tolerance) else {"default": parse_fraction(value)}


class ScenarioFile(Part):
    """One point of an experiment: the file without its sweep."""

    example = "{scenario: 1, name: ..., clock: ..., topology: ...}"
    scenario: Annotated[Literal[1], BeforeValidator(reject_bool)]
    name: FileName
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 1
    clock: Clock
    topology: Topology
    routing: RoutingSection = Routing()
    refresh: DurationNs | None = None
    classes: ClassesSection = Classes()
    subscriptions: Subscriptions = Subscriptions()
    publications: Publications = Publications()
    service: Service = Service()
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    requesters: tuple[Requester, ...] = ()
    responders: tuple[Responder, ...] = ()
    copies: Annotated[int, Field(strict=True, ge=1, le=COPIES_MAX)] = 1
    faults: tuple[Annotated[Fault, WrapValidator(_fault)], ...] = ()
    payload: Annotated[int, Field(strict=True, ge=0, le=PAYLOAD_BYTES_MAX)] = 64
    peers: Literal["stock", "light"] = "stock"
    limits: Limits = Limits()
    durability: Literal["memory", "process", "disk"] = "process"
    links: tuple[Link, ...] = ()
    media: tuple[Name, ...] = ()
    costs: CostsSection | None = None
    placement: PlacementSection | None = None
    tolerance: Annotated[Tolerance, BeforeValidator(_one_for_all), WithJsonSchema(_TOLERANCE)] = Tolerance()
    model: Literal["best", "algorithm1"] = "best"

    @property
    def parts(self) -> dict[str, Any]:
        """The sections of the workload that are given, beside those which are fields here."""
        names = [part.name for part in WORKLOAD.all.values() if part.section is not None]
        return {name: section for name in names if (section := getattr(self, name)) is not None}


@cache
def scenario_model() -> type[ScenarioFile]:
    """A file with the keys of all parts of workloads that are registered."""
    sections = {part.name: part.section for part in WORKLOAD.all.values() if part.section is not None}
    if not sections:
        return ScenarioFile
    fields: dict[str, Any] = {name: (section | None, None) for name, section in sections.items()}
    return create_model("ScenarioFile", __base__=ScenarioFile, __doc__=ScenarioFile.__doc__, **fields)
