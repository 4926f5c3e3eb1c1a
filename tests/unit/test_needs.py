"""What the tests need beyond Python packages: installed where that can be done, named elsewhere, and skipped exactly."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from brokerbed.orchestrator.grounds.base_image import GIVEN
from tests import needs

ROOT = Path(__file__).parents[2]
APT_GET = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in *install*) [ -e {policy} ] && echo services stay off >> {calls}
    for name in mosquitto mosquitto_pub; do cp "$0" {folder}/$name; done;; esac
exit {code}
"""
APT_CACHE = "#!/bin/sh\n[ $2 != openjdk-17-jre-headless ]\n"  # as on Debian 13


class Machine:
    """With a Python, and an apt-get that has mosquitto and its clients and notes how it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls, self.policy = folder, folder / "calls", folder / "policy-rc.d"
        self.has("apt-get", APT_GET.format(calls=self._calls, folder=folder, policy=self.policy, code=0))
        self.has("apt-cache", APT_CACHE)

    def has(self, program: str, text: str = "#!/bin/sh\n") -> None:
        (self.folder / program).write_text(text)
        (self.folder / program).chmod(0o755)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A Debian of somebody who is root, without any of the programs."""
    found = Machine(tmp_path)
    (tmp_path / "debian_version").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    monkeypatch.delenv("BROKERBED_NO_INSTALL", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("brokerbed.analysis.java.FETCHED", tmp_path / "java")
    monkeypatch.setattr(needs, "SBIN", "/nowhere")
    monkeypatch.setattr(needs, "DEBIAN", tmp_path / "debian_version")
    monkeypatch.setattr(needs, "POLICY", found.policy)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("cp", "cat"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    needs.reason_lacking.cache_clear()
    yield found
    needs.reason_lacking.cache_clear()


PACKAGES = "iproute2 openssl mosquitto mosquitto-clients debootstrap openssh-server chromium prometheus"


def test_missing_packages_are_installed_as_root_on_debian_and_no_service_is_started(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert needs.main() == 1
    update, install, policy = machine.calls()
    assert update.endswith("update")
    assert install.endswith(f"install --no-install-recommends make openjdk-21-jre-headless {PACKAGES}")
    assert policy == "services stay off"
    assert not machine.policy.exists()
    first, last = capfd.readouterr().out.splitlines()
    assert "installing" in first
    assert "skipped: make, ip, openssl, debootstrap, sshd, chromium, prometheus, promtool (Debian: make" in last


def test_nothing_is_installed_or_said_where_nothing_is_missing(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    for program in needs.PACKAGES:
        machine.has(program, "#!/bin/sh\necho 'openjdk version \"21.0.1\"'\n")
    assert needs.main() == 0
    assert (machine.calls(), capfd.readouterr().out) == ([], "")


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("asked not to", "BROKERBED_NO_INSTALL=1"),
        ("not root", "installing them needs root"),
        ("not Debian", "this is neither Debian nor Ubuntu"),
        ("apt-get fails", "apt-get failed: Command"),
    ],
)
def test_what_is_missing_is_named_in_one_line_where_it_cannot_be_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], why: str, reason: str
) -> None:
    machine.has("make")
    if why == "asked not to":
        monkeypatch.setenv("BROKERBED_NO_INSTALL", "1")
    elif why == "not root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    elif why == "not Debian":
        (machine.folder / "debian_version").unlink()
    else:
        machine.has("apt-get", "#!/bin/sh\nexit 100\n")
    assert needs.main() == 1
    assert machine.calls() == []
    line = capfd.readouterr().out.splitlines()[-1]
    assert f"(Debian: {PACKAGES}); not installed here: {reason}" in line


@pytest.mark.needs("make")
def test_packages_are_looked_after_before_the_tests_begin() -> None:
    """And nowhere else."""
    shown = subprocess.run(
        [needs.path_of("make"), "--no-print-directory", "-n", "test"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    *before, last = shown.stdout.splitlines()
    assert [it for it in before if it.endswith("-m tests.needs || true")]
    assert "/pytest " in last
    assert [name for name in PACKAGES.split() if name in (ROOT / ".ci" / "run").read_text()] == []


HIDDEN = "import sys, pytest; from tests import needs; needs.SBIN = ''; sys.exit(pytest.main(sys.argv[1:]))"
SELECTED = (
    "tests/container/test_docker_ground.py",
    "tests/container/test_image.py",
    "tests/mqtt/test_stock_clients.py",
    "tests/watch/test_rules.py",
)
REASONS = r"""
    the\ Docker\ engine\ has\ no\ image\ for\ brokers:\ BROKERBED_BASE_IMAGE\ is\ .* | no\ Docker\ engine\ answers\ .*
    | mosquitto_pub\ is\ not\ installed\ .* | promtool\ is\ not\ installed\ .*
"""


def test_exactly_the_tests_that_need_it_are_skipped_with_the_reason(tmp_path: Path) -> None:
    """On a machine with an engine (if there is one here), but neither a way to an image nor any program."""
    environment = {**os.environ, "PATH": "/nowhere", GIVEN: "127.0.0.1:9/none:1", "PYTHONPATH": str(ROOT)}
    environment.pop("BROKERBED_REQUIRE_DOCKER", None)
    file = tmp_path / "results.xml"
    options = ["-q", "-n", "0", "--assert=plain", "-p", "no:cacheprovider", f"--junitxml={file}"]
    command = [sys.executable, "-c", HIDDEN, *options, *SELECTED]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = ElementTree.parse(file).getroot().findall(".//testcase")
    skipped = {f"{it.get('name')}": it.find("skipped") for it in cases if it.find("skipped") is not None}
    for name, why in skipped.items():
        assert why is not None
        assert re.fullmatch(REASONS, why.get("message", ""), re.VERBOSE), name
    ran = {f"{it.get('name')}" for it in cases} - skipped.keys()
    assert {"test_ctrl_c_leaves_nothing_but_the_log", "test_all_that_is_imported_is_compiled_already"} <= skipped.keys()
    assert {
        "test_without_an_engine",
        "test_tag_follows_content",
        "test_targets_of_the_compose_file_are_its_published_metrics",
    } <= ran
    assert not [name for name in ran if "message" in name]
