"""The key `routing` of a scenario file: the name of an algorithm, or a mapping with its parameters."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator, WithJsonSchema

from brokerbed.broker.routing.registry import ALGORITHMS, DEFAULT
from brokerbed.broker.routing.strategy import Algorithm, ParameterError
from brokerbed.scenario.document import shown
from brokerbed.scenario.part import problem

ALGORITHM = "algorithm"  # the key of the mapping that names the algorithm; all others are parameters


class Routing(NamedTuple):
    """An algorithm with all of its parameters."""

    algorithm: str = DEFAULT
    parameters: Mapping[str, int] = {}  # never changed: the default algorithm has none


def _routing(value: Any) -> Routing:
    if isinstance(value, Routing):
        return value
    if not isinstance(value, dict):
        return Routing(_algorithm(value, None).name, _algorithm(value, None).checked({}))
    if value.get(ALGORITHM) is None:
        raise problem("is required, as in routing: {algorithm: merging, threshold: 3}", ALGORITHM)
    algorithm = _algorithm(value[ALGORITHM], ALGORITHM)
    given = {key: parameter for key, parameter in value.items() if key != ALGORITHM and parameter is not None}
    try:
        return Routing(algorithm.name, algorithm.checked(given))
    except ParameterError as error:
        raise problem(str(error), error.key) from None


def _algorithm(value: Any, key: str | None) -> Algorithm:
    try:
        return ALGORITHMS[value]
    except (KeyError, TypeError):
        *others, last = ALGORITHMS.all
        raise problem(f"must be {', '.join(others)} or {last}, not {shown(value)}", key) from None


def routing_schema() -> dict[str, Any]:
    """The JSON Schema of the key, with the algorithms of other packages."""
    names = {"type": "string", "enum": list(ALGORITHMS.all)}
    parameters = {
        parameter.name: {"type": "integer", "minimum": parameter.minimum, "description": parameter.summary}
        for algorithm in ALGORITHMS.all.values()
        for parameter in algorithm.parameters
    }
    long_form = {"type": "object", "properties": {ALGORITHM: names, **parameters}, "required": [ALGORITHM]}
    return {"anyOf": [names, {**long_form, "additionalProperties": False}], "default": DEFAULT}


RoutingSection = Annotated[Routing, PlainValidator(_routing), WithJsonSchema({"type": ["string", "object"]})]
