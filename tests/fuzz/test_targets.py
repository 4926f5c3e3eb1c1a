"""A short round of fuzzing with a fixed seed, and what the long ones (`make fuzz`) have found."""

import random

import pytest

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


FOUND: dict[str, list[bytes]] = {name: [] for name in TARGETS}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, found in FOUND.items() for data in found])
def test_input_that_once_failed(name: str, data: bytes) -> None:
    TARGETS[name].run(data)
