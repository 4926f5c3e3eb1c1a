"""A distribution of durations, as scenario files give it."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema, model_validator

from brokerbed.scenario.part import Part, problem
from brokerbed.scenario.units import NS_PER_S, DurationNs


class Law(Part):
    """A distribution of durations, given by its mean."""

    example = "{mean: 60s, law: exponential}"
    mean: DurationNs
    law: Literal["exponential", "deterministic", "uniform", "lognormal"] = "exponential"
    cv: Annotated[float, Field(strict=True, gt=0, le=100)] | None = None

    @model_validator(mode="after")
    def _cv_is_lognormal(self) -> Self:
        if self.cv is not None and self.law != "lognormal":
            raise problem("cv goes with law: lognormal only", "cv")
        return self

    @property
    def mean_s(self) -> float:
        return self.mean / NS_PER_S

    @property
    def second_moment_s2(self) -> float:
        """E[X^2]: mean^2 (1 + squared coefficient of variation)."""
        cv = self.cv if self.cv is not None else 1.0
        squared_cv = {"exponential": 1.0, "deterministic": 0.0, "uniform": 1 / 3, "lognormal": cv * cv}[self.law]
        return self.mean_s**2 * (1 + squared_cv)


def fixed_or_law(value: Any) -> Any:
    """A plain duration is the same as a deterministic law."""
    if isinstance(value, dict | Law):
        return value
    _DURATION.validate_python(value)
    return {"mean": value, "law": "deterministic"}


_DURATION: TypeAdapter[int] = TypeAdapter(DurationNs)
_DURATION_OR_LAW = {"anyOf": [_DURATION.json_schema(), Law.model_json_schema()]}
DurationOrLaw = Annotated[Law, BeforeValidator(fixed_or_law), WithJsonSchema(_DURATION_OR_LAW)]
