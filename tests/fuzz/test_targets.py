"""A short round of fuzzing with a fixed seed, and what the long ones (`make fuzz`) have found."""

import random

import pytest

from brokerbed.log.record import FIELDS, MAGIC, RECORD
from tests.fuzz.targets import TARGETS
from tests.mqtt.fuzz import mutate

MUTANTS = {"core": 150, "HTTP API": 150, "scenario loader": 60}
MANY = 1500  # of the other targets, which are quick
MUTATIONS_MAX = 4


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_of_valid_inputs(name: str) -> None:
    target, chance = TARGETS[name], random.Random(f"fuzz/{name}")
    seeds = target.seeds()
    for seed in seeds:
        target.run(seed)
    for _ in range(MUTANTS.get(name, MANY)):
        data = chance.choice(seeds)
        for _ in range(chance.randint(1, MUTATIONS_MAX)):
            data = mutate(chance, data) if data else chance.randbytes(4)
        try:
            target.run(data)
        except Exception as error:
            raise AssertionError(f"{data!r}") from error


def _log(count: int) -> bytes:
    """A log with one record, which says that it stands for so many messages."""
    fields = [count if name == "count" else 0 for name, _ in FIELDS]
    return b'{"name": 0, "is": "p"}\n{"route": 0, "to": [0, 0]}\n\0\0\n' + MAGIC + RECORD.pack(*fields)


FOUND = {
    "log reader": [
        _log(2**31 - 1),
        _log(-1),
        b"\xc1" + _log(1),
        _log(1).replace(b'"name"', b'"nome"'),
    ],  # took gigabytes; had other errors than the reader's
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, found in FOUND.items() for data in found])
def test_input_that_once_failed(name: str, data: bytes) -> None:
    TARGETS[name].run(data)
