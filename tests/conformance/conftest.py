"""Every behaviour is shown on every ground."""

from functools import partial
from pathlib import Path

import pytest

from tests.conformance.runs import Play
from tests.conformance.runs import play as play_on


@pytest.fixture(params=["virtual", "local", pytest.param("docker", marks=pytest.mark.needs("docker"))])
def ground(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def play(ground: str, tmp_path: Path) -> Play:
    return partial(play_on, ground, tmp_path)
