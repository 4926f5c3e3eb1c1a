"""How short an emulated service may be: what real time adds to the delays of a run, for several mean demands.

`python -m bench.short_services [--demands 0.25 0.5 1 2 5] [--seconds 10] [--peers stock]` plays one scenario for each
demand twice: on the virtual ground, where timers are exact, and on the local ground at a speed-up of 1. Both draw the
same workload and service times from the seed, so the difference is what the testbed adds to the delay of each message;
its mean and its median are printed. A publisher, a broker's session and a subscriber serve each message for the same
mean time, and each is busy for a tenth of the time.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median

import yaml

from brokerbed.log.reader import read
from brokerbed.log.record import CLIENTS
from brokerbed.orchestrator.grounds.base import Ground, Place
from brokerbed.orchestrator.grounds.local import LocalGround
from brokerbed.orchestrator.grounds.virtual import VirtualGround
from brokerbed.scenario import load

UTILISATION = 0.1
STAGES = {
    "publisher": ("published", "sent"),
    "subscriber": ("received", "processed"),
    "end to end": ("published", "processed"),
}
NS_PER_MS = 1e6


def scenario_of(demand_ms: float, seconds: float, peers: str) -> str:
    service = {"mean": f"{demand_ms}ms"}
    rate = f"{UTILISATION * 1000 / demand_ms}/s"
    return yaml.safe_dump(
        {
            "scenario": 1, "name": "short-services", "seed": 1, "clock": {"measure": f"{seconds}s"}, "peers": peers,
            "topology": {"tree": "explicit", "parents": {"alone": None}},
            "publishers": [{"id": "p", "broker": "alone", "topic": "t", "rate": rate, "service": service}],
            "subscribers": [
                {"id": "s", "broker": "alone", "topic": "t", "session_service": service, "service": service}
            ],
        }
    )  # fmt: skip


def delays_ms(ground: Ground, file: Path) -> dict[str, dict[int, float]]:
    """The delays in each stage, by the number of the message."""
    raw = file.parent / type(ground).__name__
    ground.play(load(file).points[0], Place(file, 0, raw), lambda _: None)
    times_ns: dict[str, dict[int, int]] = {}
    for row in read(raw / CLIENTS, CLIENTS).to_pylist():
        if row["sequence"] is not None:
            times_ns.setdefault(row["event"], {}).setdefault(row["sequence"], row["time_ns"])
    return {
        stage: {number: (end_ns - times_ns[begun][number]) / NS_PER_MS for number, end_ns in times_ns[ended].items()}
        for stage, (begun, ended) in STAGES.items()
    }


def lines(demand_ms: float, seconds: float, peers: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(scenario_of(demand_ms, seconds, peers), encoding="utf-8")
        exact, real = delays_ms(VirtualGround(), file), delays_ms(LocalGround(), file)
    for stage in STAGES:
        added = [real[stage][number] - delay_ms for number, delay_ms in exact[stage].items()]
        figures = fmean(exact[stage].values()), fmean(real[stage].values()), fmean(added), median(added)
        yield f"{demand_ms:6g}  {stage:10}" + "".join(f"{figure:10.3f}" for figure in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demands", type=float, nargs="+", default=[0.25, 0.5, 1, 2, 5], help="milliseconds")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--peers", choices=("stock", "light"), default="stock")
    options = parser.parse_args()
    print("demand  delay (ms)   virtual     local     added    median")
    for demand_ms in options.demands:
        for line in lines(demand_ms, options.seconds, options.peers):
            print(line, flush=True)


if __name__ == "__main__":
    main()
