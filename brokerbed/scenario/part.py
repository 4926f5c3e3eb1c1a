"""What all mappings and names of a scenario file have in common: keys that are known, and errors in our own words."""

import difflib
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from brokerbed.scenario.document import shown

NAME_CHARACTERS_MAX = 64  # names become folders, client ids and metric labels

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def problem(message: str, key: str | None = None) -> PydanticCustomError:
    """An error in our own words; `key` names the key inside the mapping that is to blame."""
    return PydanticCustomError("scenario", "{message}", {"message": message, "key": key})


class Part(BaseModel):
    """A mapping of the scenario file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=False)
    example: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise problem(f"must be a mapping like {cls.example}, not {shown(data)}")
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in data:
            if key not in known:
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
                raise problem(f"unknown key; {hint}", key)
        return {key: value for key, value in data.items() if value is not None}


def _name(pattern: re.Pattern[str], allowed: str) -> BeforeValidator:
    def check(value: Any) -> str:
        text = str(value) if type(value) is int else value
        if not isinstance(text, str) or not pattern.fullmatch(text) or len(text) > NAME_CHARACTERS_MAX:
            raise problem(
                f"must be a name of 1 to {NAME_CHARACTERS_MAX} letters, digits, {allowed}, not {shown(value)}"
            )
        return text

    return BeforeValidator(check)


def reject_bool(value: Any) -> Any:
    """To Python True is 1; to a user `qos: true` is a mistake."""
    return shown(value) if isinstance(value, bool) else value


Name = Annotated[str, _name(NAME, "- and _"), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})]
FileName = Annotated[
    str, _name(_FILE_NAME, "- _ and ."), WithJsonSchema({"type": "string", "pattern": f"^{_FILE_NAME.pattern}$"})
]


Count = Annotated[int, Field(strict=True, ge=1)]
Qos = Annotated[Literal[0, 1, 2], BeforeValidator(reject_bool)]


def broker_pair(value: Any, otherwise: str = "") -> tuple[str, str]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(name, str | int) for name in value):
        raise problem(f"must name the two ends of a link, like [b1, b3]{otherwise}, not {shown(value)}")
    return str(value[0]), str(value[1])


BROKER_PAIR_SCHEMA = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
BrokerPair = Annotated[tuple[str, str], BeforeValidator(broker_pair), WithJsonSchema(BROKER_PAIR_SCHEMA)]
