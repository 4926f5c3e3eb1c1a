"""What all tests share: hypothesis profiles, scenario files from text, and whether there is a Docker engine."""

import os
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from hypothesis import HealthCheck, settings

from orchestrator.scenario import Experiment, load

settings.register_profile(
    "suite",
    deadline=None,  # other work may share the machine; time is never asserted
    derandomize=True,  # a failure is found again by whoever runs the suite next
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

FromText = Callable[[str], Experiment]
MINIMAL = "scenario: 1\nname: small\nclock: {measure: 10s}\n"


@pytest.fixture
def from_text(tmp_path: Path) -> FromText:
    """Loads a scenario from the text of its file."""

    def load_text(text: str) -> Experiment:
        file = tmp_path / "scenario.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file)

    return load_text


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `docker` need an engine: skipped where none answers, failed where one is demanded."""
    marked = [item for item in items if item.get_closest_marker("docker")]
    if not marked or os.environ.get("BROKERBED_REQUIRE_DOCKER") == "1":
        return
    try:
        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except (docker.errors.DockerException, OSError) as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no Docker engine answers ({error})"))
