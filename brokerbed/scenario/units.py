"""Quantities with units, as scenarios write them: 62.5ms, 3/s, 64MB, 64kbit/s, 2%.

Durations become integer nanoseconds, rates events per second, sizes bytes, bandwidths bits per second.
Each type is a pydantic type: it validates, and it describes itself in the JSON Schema.
"""

import math
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from brokerbed.scenario.document import shown

NS_PER_S = 1_000_000_000
DURATION_NS_MAX = 2**62  # 146 years; sums of two still fit 64 bits
RATE_PER_S_MAX = 1e9  # one event a nanosecond, the resolution of model time

_DURATIONS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_RATES = {"/s": 1, "/min": 60, "/h": 3600}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BANDWIDTHS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([^\s0-9.].*)?")


def _bad(value: object, wanted: str) -> PydanticCustomError:
    return PydanticCustomError("quantity", "{wanted}, not {value}", {"wanted": wanted, "value": shown(value)})


def _quantity(value: Any, units: dict[str, int], wanted: str) -> tuple[Decimal, int]:
    """The number and what its unit stands for."""
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 100 else None
    if match is None or (match[2] or "").strip() not in units:
        raise _bad(value, wanted)
    number = Decimal(match[1])
    if number < 0:
        raise _bad(value, "must not be negative")
    return number, units[match[2].strip()]


def parse_duration_ns(value: Any) -> int:
    if type(value) is int and value == 0:
        return 0
    number, scale = _quantity(value, _DURATIONS, "must be a duration like 60s, 62.5ms, 5min (units ns us ms s min h)")
    duration_ns = round(number * scale) if number < DURATION_NS_MAX else DURATION_NS_MAX + 1
    if duration_ns > DURATION_NS_MAX:
        raise _bad(value, "must be less than 146 years")
    return duration_ns


def _positive_duration_ns(value: Any) -> int:
    duration_ns = parse_duration_ns(value)
    if duration_ns == 0:
        raise _bad(value, "must be longer than 0 (at least 1ns)")
    return duration_ns


def parse_rate_per_s(value: Any) -> float:
    if type(value) is int and value == 0:
        return 0.0
    number, scale = _quantity(value, _RATES, "must be a rate like 3/s, 20/min or 1/h")
    if number / scale > RATE_PER_S_MAX:
        raise _bad(value, f"must be at most {RATE_PER_S_MAX:.0e}/s")
    return float(number / scale)


def _positive_rate_per_s(value: Any) -> float:
    rate_per_s = parse_rate_per_s(value)
    if rate_per_s == 0:
        raise _bad(value, "must be more than 0")
    return rate_per_s


def parse_size_bytes(value: Any) -> int:
    if type(value) is int and value > 0:
        value = f"{value}B"
    number, scale = _quantity(value, _SIZES, "must be a size like 64MB (units B kB MB GB KiB MiB GiB)")
    if not 1 <= number * scale <= 2**53:
        raise _bad(value, "must be between 1B and 2^53 bytes")
    return round(number * scale)


def parse_bandwidth_bit_per_s(value: Any) -> float:
    number, scale = _quantity(
        value, _BANDWIDTHS, "must be a bandwidth like 64kbit/s (units bit/s kbit/s Mbit/s Gbit/s)"
    )
    if not 1 <= number * scale <= 10**15:
        raise _bad(value, "must be between 1bit/s and 1000000Gbit/s")
    return float(number * scale)


def parse_fraction(value: Any) -> float:
    """2% or 0.02."""
    if isinstance(value, str) and value.strip().endswith("%"):
        number, _ = _quantity(value, {"%": 1}, "must be a percentage like 2%")
        fraction = float(number / 100)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        fraction = float(value)
    else:
        raise _bad(value, "must be a percentage like 2%")
    if not 0 <= fraction < 1:
        raise _bad(value, "must be at least 0% and less than 100%")
    return fraction


def _schema(pattern_units: dict[str, int] | None, example: str) -> WithJsonSchema:
    units = "|".join(map(re.escape, pattern_units or {"%": 1}))
    return WithJsonSchema({"type": "string", "pattern": rf"^\s*[+]?[0-9.eE+-]+\s*({units})\s*$", "examples": [example]})


DurationNs = Annotated[int, BeforeValidator(_positive_duration_ns), _schema(_DURATIONS, "60s")]
DurationOrZeroNs = Annotated[int, BeforeValidator(parse_duration_ns), _schema(_DURATIONS, "120s")]
RatePerS = Annotated[float, BeforeValidator(_positive_rate_per_s), _schema(_RATES, "3/s")]
RateOrZeroPerS = Annotated[float, BeforeValidator(parse_rate_per_s), _schema(_RATES, "1000/s")]
SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes), _schema(_SIZES, "64MB")]
BandwidthBitPerS = Annotated[float, BeforeValidator(parse_bandwidth_bit_per_s), _schema(_BANDWIDTHS, "64kbit/s")]
Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": "%$"}, {"type": "number", "minimum": 0}], "examples": ["2%"]}
    ),
]


_BASES = (
    ("s", _DURATIONS, NS_PER_S),
    ("/s", _RATES, 1),
    ("B", _SIZES, 1),
    ("bit/s", _BANDWIDTHS, 1),
    ("%", {"%": 1}, 1),
)


def in_base_unit(text: str) -> tuple[float, str]:
    """A quantity of any kind in the base unit of its kind, as (90.0, "s") for 1.5min; ValueError if it is none."""
    match = _QUANTITY.fullmatch(text.strip()) if len(text) < 100 else None
    if match is None:
        raise ValueError(text)
    number, unit = Decimal(match[1]), (match[2] or "").strip()
    if not unit:
        return float(number), ""
    for base, units, of_base in _BASES:
        if unit in units:
            scale = Decimal(units[unit]) / of_base
            return float(number / units[unit] if base == "/s" else number * scale), base
    raise ValueError(text)


def duration_text(seconds: float) -> str:
    """A rounded value for people."""
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    if seconds < 600:
        return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def size_text(bytes_: float) -> str:
    """A rounded value for people."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if bytes_ >= factor:
            return f"{bytes_ / factor:.1f} {unit}"
    return f"{max(1.0, bytes_ / 1e3):.0f} kB"
