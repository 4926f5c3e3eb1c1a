"""The full campaign: `python -m tests.durability.campaign`. Exit code 1 if a promise was broken.

One broker is killed 200 times under load, a chain of three 100 times; `--broker mosquitto` puts Mosquitto in the place
of the one broker, for comparison. The load is a mixture: MQTT 3.1.1 and 5, QoS 0, 1 and 2, retained messages, several
sessions and shared groups on the same topics, and sessions that end in each of the ways in which they can.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.durability.driver import Result, run
from tests.durability.ledger import Kind
from tests.durability.plan import Plan

PROGRESS_KILLS = 10  # between two lines of progress
VIOLATIONS_SHOWN = 5  # of each kind


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.durability.campaign", description=__doc__)
    parser.add_argument("--kills-single", type=int, default=200, help="of one broker (200)")
    parser.add_argument("--kills-chain", type=int, default=100, help="of one of three brokers in a chain (100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=["memory", "process", "disk", "none"], default="process",
                        help="of the brokers; none starts them without --data and --durability")  # fmt: skip
    parser.add_argument("--routing", choices=["identity", "simple", "flooding"], default="identity")
    parser.add_argument("--broker", choices=["brokerbed", "mosquitto"], default="brokerbed")
    parser.add_argument("--strict-links", action="store_true",
                        help="a QoS 1 duplicate made on a link between brokers is a violation, too")  # fmt: skip
    parser.add_argument("--keep", type=Path, help="a folder for the brokers' data, which stays")
    return parser.parse_args()


def plans(chosen: argparse.Namespace) -> dict[str, Plan]:
    durability = None if chosen.durability == "none" else chosen.durability
    out: dict[str, Plan] = {}
    if chosen.kills_single and chosen.broker == "mosquitto":
        out["mosquitto"] = Plan(
            kills=chosen.kills_single,
            seed=chosen.seed,
            durability=None,
            mosquitto=shutil.which("mosquitto") or "/usr/sbin/mosquitto",
        )
    elif chosen.kills_single:
        out["single"] = Plan(kills=chosen.kills_single, seed=chosen.seed, durability=durability, load_s=(0.02, 0.6))
    if chosen.kills_chain and chosen.broker == "brokerbed":
        out["chain"] = chain_plan(chosen.kills_chain, chosen.seed, durability, chosen.routing, not chosen.strict_links)
    return out


def chain_plan(
    kills: int, seed: int, durability: str | None, routing: str = "identity", links_repeat: bool = True
) -> Plan:
    """Three brokers on the same machine: less load for each, and time for links to come back between two kills."""
    return Plan(
        kills=kills, seed=seed, chain=True, durability=durability, routing=routing, publishers=6, subscribers=6,
        rate_per_s=150.0, load_s=(0.02, 0.5), links_repeat=links_repeat,
    )  # fmt: skip


def show_progress(name: str, result: Result) -> None:
    if result.kills % PROGRESS_KILLS == 0:
        print(f"  {name}: {result.kills} kills, {result.seconds:.0f} s, acknowledged {result.acknowledged}, "
              f"delivered {result.delivered} of {result.owed}", flush=True)  # fmt: skip


def show_violations(result: Result) -> None:
    for kind in Kind:
        of_kind = [it for it in result.violations if it.kind is kind]
        for violation in of_kind[:VIOLATIONS_SHOWN]:
            print(f"  {violation}")
        if len(of_kind) > VIOLATIONS_SHOWN:
            print(f"  ... and {len(of_kind) - VIOLATIONS_SHOWN} more of {kind.name}")


def show_totals(results: list[Result]) -> None:
    def total(kind: Kind) -> int:
        return sum(it.count(kind) for it in results)

    print(
        f"{sum(it.kills for it in results)} kills in {sum(it.seconds for it in results):.0f} s: "
        f"{sum(it.acknowledged for it in results)} messages acknowledged, {total(Kind.LOST) + total(Kind.STALE)} lost, "
        f"{total(Kind.TWICE)} doubled at QoS 0 or 2, {total(Kind.DISORDER)} out of order; "
        f"{sum(it.sessions_ended for it in results)} sessions ended; {total(Kind.DAMAGED)} stores set aside"
    )


def main() -> int:
    chosen = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the brokers are stopped
    results: list[Result] = []
    for name, plan in plans(chosen).items():
        print(f"{name}: {plan.kills} kills, seed {plan.seed}, durability {plan.durability}", flush=True)
        with tempfile.TemporaryDirectory(prefix=f"kill-{name}-") as temporary:
            folder = chosen.keep / name if chosen.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            result = run(plan, folder, partial(show_progress, name))
        print(f"{name}: {result}")
        show_violations(result)
        results.append(result)
    show_totals(results)
    is_kept = not any(it.violations for it in results)
    print("nothing was lost" if is_kept else "PROMISES WERE BROKEN")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
