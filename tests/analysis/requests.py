"""100 requesters and 20 responders, one of whose brokers is killed: a scenario for any ground.

`python -m tests.analysis.requests > struck.yaml` writes it with a length and rates for real brokers, and
`brokerbed run struck.yaml` runs it there.
"""

REQUESTERS, RESPONDERS, LEAVES = 100, 20, ("b3", "b4", "b5", "b6")


def struck(measure_s: int, rate: float, qos: int) -> str:
    """Five requesters share each responder, which is on another leaf of the tree; b5 is the broker of five of these."""
    asking = [
        f"  - {{id: q{number}, broker: {LEAVES[number % 4]}, topic: ask/{number % RESPONDERS}, rate: {rate}/s, qos: {qos}}}"
        for number in range(REQUESTERS)
    ]
    serving = [
        f"  - {{id: r{number}, broker: {LEAVES[(number + 1) % 4]}, topic: ask/{number}, service: {{mean: 50ms}}, qos: {qos}}}"
        for number in range(RESPONDERS)
    ]
    return "\n".join([
        "scenario: 1", "name: struck", f"clock: {{warmup: 2s, measure: {measure_s}s}}",
        "topology: {tree: regular, arity: 2, depth: 3}", "requesters:", *asking, "responders:", *serving,
        f"faults: [{{at: {measure_s // 2}s, crash: b5, for: 3s}}]", "durability: process", "tolerance: 50%", "",
    ])  # fmt: skip


if __name__ == "__main__":
    print(struck(measure_s=60, rate=0.5, qos=2))
