"""A real Prometheus on loopback, with the shipped configuration but for its pace and the places of its files."""

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.broker.running import WAIT_S
from tests.needs import path_of
from tests.watch.expressions import DEPLOY, RULES

PACE = "1s"  # of scrapes and rules
FOR = "1s"  # instead of the alerts' own, so that nobody has to wait
POLL_S = 0.5  # no more often, or Prometheus is busy with that
Series = dict[str, Any]  # labels in "metric", time and value in "value"


@dataclass(frozen=True)
class Prometheus:
    folder: Path
    port: int

    @property
    def targets(self) -> Path:
        """The folder in which runs are found."""
        return self.folder / "targets"

    def ask(self, path: str, **parameters: object) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}?{query}", timeout=WAIT_S) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str, **at: float) -> list[Series]:
        """At `time`, or now."""
        found: list[Series] = self.ask("api/v1/query", query=expression, **at)["result"]
        return found

    def value(self, expression: str, **at: float) -> float | None:
        """Of the only series, if there is one."""
        found = self.query(expression, **at)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def active(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("api/v1/targets", state="active")["activeTargets"]
        return found

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1):
                return True
        except OSError:
            return False


def wait_for(condition: Callable[[], bool], what: str, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < end_s, f"{what} did not happen within {wait_s} s"
        time.sleep(POLL_S)


def hastened_rules() -> dict[str, Any]:
    """The shipped rules; only alerts need not hold for so long."""
    told: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in told["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["for"] = FOR
    return told


def _configure(folder: Path) -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] |= {"scrape_interval": PACE, "evaluation_interval": PACE}
    config["scrape_configs"][0]["file_sd_configs"][0]["refresh_interval"] = PACE
    (folder / "targets").mkdir(parents=True)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "rules.yml").write_text(yaml.safe_dump(hastened_rules()), encoding="utf-8")


@contextmanager
def prometheus(folder: Path) -> Iterator[Prometheus]:
    _configure(folder)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = int(held.getsockname()[1])
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [path_of("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"], stdout=said, stderr=said
        )
    running = Prometheus(folder, port)
    try:
        wait_for(running.is_ready, "Prometheus being ready", 60)
        yield running
    finally:
        process.terminate()
        process.wait(WAIT_S)
