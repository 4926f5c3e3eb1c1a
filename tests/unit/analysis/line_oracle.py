"""Mean response times of single queues by the LINE solver: `python tests/unit/analysis/line_oracle.py`.

LINE (`pip install line-solver`, BSD licence) is no dependency of brokerbed, because it asks for a version of websockets
that others here cannot have (docs/decisions.md); run this in an environment of its own. An ON/OFF centre is a queue with
preemptive resume that serves one more customer first: an outage, which comes back after the server has been ON.
"""

from itertools import pairwise
from typing import Any

import line_solver as line  # type: ignore[import-not-found,unused-ignore]

CUTOFF = 40  # messages in a queue; with the loads below longer queues have a probability below 1e-8
ON_OFF = ((2.0, 0.0625, 1.0, 1.0), (1.0, 0.2, 2.0, 1.0), (0.5, 0.25, 1.0, 2.0))  # rate, demand, ON, OFF
M_M_1 = ((1.0, 0.3), (2.0, 0.25))  # rate, demand
M_ERLANG_1 = ((1.0, 0.4, 2), (2.0, 0.2, 4))  # rate, demand, phases


def single(rate: float, service: Any) -> Any:
    model = line.Network("single")
    source, queue, sink = (
        line.Source(model, "Source"),
        line.Queue(model, "Queue", line.SchedStrategy.FCFS),
        line.Sink(model, "Sink"),
    )
    messages = line.OpenClass(model, "Messages")
    source.set_arrival(messages, line.Exp(rate))
    queue.set_service(messages, service)
    model.link(line.Network.serial_routing(source, queue, sink))
    return model


def on_off(rate: float, demand: float, on: float, off: float) -> Any:
    model = line.Network("on_off")
    source, sink = line.Source(model, "Source"), line.Sink(model, "Sink")
    queue, up = line.Queue(model, "Queue", line.SchedStrategy.FCFSPRPRIO), line.Delay(model, "Up")
    outage, messages = line.ClosedClass(model, "Outage", 1, up, 0), line.OpenClass(model, "Messages", 1)
    source.set_arrival(messages, line.Exp(rate))
    queue.set_service(messages, line.Exp(1 / demand))
    queue.set_service(outage, line.Exp(1 / off))
    up.set_service(outage, line.Exp(1 / on))
    up.set_service(messages, line.Disabled())
    routing = model.init_routing_matrix()
    for kind, *way in ((messages, source, queue, sink), (outage, up, queue, up)):
        for here, there in pairwise(way):
            routing.set(kind, kind, here, there, 1.0)
    model.link(routing)
    return model


def response(model: Any) -> Any:
    table = line.CTMC(model, cutoff=CUTOFF).avg_table()
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.values]
    return next(row["RespT"] for row in rows if row["Station"] == "Queue" and row["JobClass"] == "Messages")


def main() -> None:
    for rate, demand in M_M_1:
        print("M/M/1", rate, demand, response(single(rate, line.Exp(1 / demand))), flush=True)
    for rate, demand, phases in M_ERLANG_1:
        print("M/Er/1", rate, demand, phases, response(single(rate, line.Erlang(phases / demand, phases))), flush=True)
    for parameters in ON_OFF:
        print("ON/OFF", *parameters, response(on_off(*parameters)), flush=True)


if __name__ == "__main__":
    main()
