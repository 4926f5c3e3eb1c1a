"""The installed command, in a folder and an environment of its own; and the scenarios that are given to it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = Path(sys.prefix) / "bin" / "brokerbed"
DONE_S_MAX = 300  # Spark on a busy machine

TINY = """
scenario: 1
name: tiny
clock: {warmup: 5s, measure: 40s}
topology: {tree: line, brokers: 2}
classes: 4
subscriptions: {mean_active: 6, lifetime: {mean: 10s}}
publications: {rate: 10/s}
publishers: [{id: p, broker: b1, topic: t/x, rate: 2/s}]
subscribers: [{id: s, broker: b0, topic: t/x}]
"""
SWEEP = TINY + "sweep: {routing: [identity, flooding], classes: [4, 6]}\n"
LONG = SWEEP.replace("measure: 40s", "measure: 1500s")  # some seconds per point


def start(folder: Path, *arguments: str | Path, conf: Path | None = None, **more: str) -> subprocess.Popen[str]:
    """`conf` has the cluster's spark-defaults.conf; `more` are variables of the environment."""
    environment = os.environ | more | ({} if conf is None else {"SPARK_CONF_DIR": str(conf)})
    return subprocess.Popen(
        [COMMAND, *arguments], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    try:
        out, errors = process.communicate(timeout=DONE_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, errors


def brokerbed(folder: Path, *arguments: str | Path, conf: Path | None = None, **more: str) -> tuple[int, str, str]:
    return finish(start(folder, *arguments, conf=conf, **more))


def run(folder: Path, text: str, out: str, *options: str, conf: Path | None = None) -> Path:
    """A scenario on the virtual ground, not analysed; its run directory."""
    (folder / "s.yaml").write_text(text)
    command = ("run", "s.yaml", "--on", "virtual", "--out", out, "--no-analyse", *options)
    code, printed, errors = brokerbed(folder, *command, conf=conf)
    assert code == 0, errors
    return folder / printed.strip()


def numbers(printed: str) -> dict[tuple[str, ...], float | None]:
    """All that an analysis measured and judged, by place."""
    told: dict[str, Any] = json.loads(printed)
    found: dict[tuple[str, ...], float | None] = {}
    for row in told["metrics"]:
        place = row["metric"], *row["labels"].values()
        found |= {(*place, kind): row[kind] for kind in ("measured", "ci_low", "ci_high")}
    for it in told["invariants"]:
        found[it["name"], "checked"] = it["checked"]
        found[it["name"], "holds"] = it["holds"]
    for it in told["assumptions"]:
        found[it["name"], str(it["at"]), "p"] = it["p_value"]
    return found
