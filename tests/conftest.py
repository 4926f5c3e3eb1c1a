"""What all tests share: hypothesis profiles, scenario files from text, and skipping tests whose needs are not met."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from brokerbed.scenario import Experiment, load
from tests.needs import require

settings.register_profile(
    "suite",
    deadline=None,  # other work may share the machine; time is never asserted
    derandomize=True,  # a failure is found again by whoever runs the suite next
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does this in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = {  # folders whose tests share a process, so that they run one after the other; others stay together by folder
    "integration": "networks",
    "live": "networks",
    "local": "networks",
    "watch": "networks",
    "conformance": "grounds",
    "container": "grounds",  # some look at all that is on the engine
    "analysis": "spark",
    "cluster": "spark",
}
LONG = ("networks", "grounds", "spark")  # they are begun first; the two that run networks mostly wait
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


def group_of(nodeid: str) -> str:
    folder = nodeid.split("/")[1]
    return TOGETHER.get(folder, folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(group) if (group := group_of(item.nodeid)) in LONG else len(LONG))


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """For `make test`: a process that is done with a group of tests takes the next one."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByGroup | None:
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False  # the order above, not the largest number of tests first
    return _ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)  # before fixtures begin to work
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests whose needs are not met here."""
    for marker in item.iter_markers("needs"):
        require(*marker.args)
