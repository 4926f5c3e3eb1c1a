"""What all tests share: hypothesis profiles, scenario files from text, and whether there is a Docker engine."""

import os
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from orchestrator.scenario import Experiment, load

settings.register_profile(
    "suite",
    deadline=None,  # other work may share the machine; time is never asserted
    derandomize=True,  # a failure is found again by whoever runs the suite next
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

NETWORKS = ("conformance", "container", "integration", "live", "local", "watch")  # one at a time, as they mind load
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


class _TwoKinds(LoadScopeScheduling):  # type: ignore[misc]
    """Tests for two processes (`make test`): one runs networks, and mostly waits; the other works."""

    def _split_scope(self, nodeid: str) -> str:
        return "networks" if nodeid.split("/")[1] in NETWORKS else "work"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _TwoKinds | None:
    return _TwoKinds(config, log) if config.getvalue("dist") == "loadscope" else None


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
