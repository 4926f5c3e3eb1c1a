"""The Grafana dashboards: `python -m deploy.dashboards` writes them into deploy/grafana/dashboards.

A dashboard is described by data: rows of panels, each with its PromQL. Every version of Grafana reads the classic JSON
format that is written.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueGraphMode, DataSourceRef
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent / "grafana" / "dashboards"
SOURCE = DataSourceRef("prometheus", "brokerbed-prometheus")  # as in grafana/provisioning
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4  # the width of Grafana's grid; the heights of panels
PREDICTED = "predicted"  # the legends of predictions begin with this word, and their lines are dashed
EVERY, FAILS, PER_S, SECONDS, BYTES, PERCENT = "short", "bool", "ops", "s", "bytes", "percentunit"
Query = tuple[str, str]  # PromQL and the legend of its lines


@dataclass(frozen=True)
class View:
    """One panel."""

    title: str
    about: str
    queries: Sequence[Query]
    unit: str = EVERY
    kind: Literal["line", "stat", "table"] = "line"
    is_bad_above: float | None = None  # a stat panel is red from this value on


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    about: str
    rows: Sequence[Sequence[View]]  # the panels of a row share its width
    of_one_broker: bool = False


RUN, ONE = '{run="$run"}', '{run="$run", broker="$broker"}'


def mean_lag(selector: str) -> str:
    """The mean lateness of event loops, which is sampled ten times a second."""
    window = f"{selector}[$__rate_interval]"
    return f"rate(brokerbed_loop_lag_seconds_total{window}) / rate(brokerbed_loop_lag_samples_total{window})"


NETWORK = Dashboard(
    "brokerbed-network",
    "brokerbed: network",
    "All brokers and links of one run.",
    [
        [
            View("Brokers that answer", "Brokers that answer Prometheus, and all brokers of the run.",
                 [('count(up{run="$run", broker!=""} == 1)', "answer"), ('count(up{run="$run", broker!=""})', "all")],
                 kind="stat"),
            View("Link ends that are down", "Ends that are not connected, or silent for more than 15 s.",
                 [(f"count(brokerbed_link_connected{RUN} == 0 or brokerbed_link_silent_seconds{RUN} > 15) or vector(0)",
                   "down")], kind="stat", is_bad_above=1),
            View("Messages under way", "Messages that brokers have not finished with.",
                 [(f"sum(brokerbed_messages_under_way{RUN})", "under way")], kind="stat"),
            View("Alerts", "Alerts that are firing now.",
                 [('count(ALERTS{run="$run", alertstate="firing"}) or vector(0)', "firing")], kind="stat",
                 is_bad_above=1),
        ],
        [
            View("From and to clients", "PUBLISH packets.",
                 [(f"sum(rate(brokerbed_messages_received_total{RUN}[$__rate_interval]))", "received"),
                  (f"sum(rate(brokerbed_messages_delivered_total{RUN}[$__rate_interval]))", "delivered")], PER_S),
            View("Over links, by kind", "Messages sent by all brokers to their neighbours.",
                 [(f"sum by (kind) (rate(brokerbed_link_messages_total{RUN}[$__rate_interval]))", "{{kind}}")], PER_S),
        ],
        [
            View("The ten busiest links", "Messages of all kinds in one direction.",
                 [(f"topk(10, sum by (broker, peer) (rate(brokerbed_link_messages_total{RUN}[$__rate_interval])))",
                   "{{broker}} > {{peer}}")], PER_S),
            View("Routing entries", "Subscriptions of clients, and entries of child links.",
                 [(f"sum by (scope) (brokerbed_routing_entries{RUN})", "{{scope}}")]),
        ],
        [
            View("Waiting for links", "A link that is cut has a queue at both ends.",
                 [(f"brokerbed_link_queue_messages{RUN}", "{{broker}} > {{peer}}")]),
            View("Silence of links", "An intact link is never silent for more than about 10 s.",
                 [(f"brokerbed_link_silent_seconds{RUN}", "{{broker}} hears {{peer}}")], SECONDS),
        ],
        [
            View("Dropped, by reason", "MQTT prescribes offline, expired and session_ended; other reasons mean loss.",
                 [(f"sum by (reason) (rate(brokerbed_messages_dropped_total{RUN}[$__rate_interval]))", "{{reason}}")],
                 PER_S),
            View("How late event loops are", "If this is more than 20 ms, the machine is too slow for the run.",
                 [(mean_lag(RUN), "{{broker}}")], SECONDS),
        ],
    ],
)  # fmt: skip

BROKER = Dashboard(
    "brokerbed-broker",
    "brokerbed: one broker",
    "One broker of a run.",
    [
        [
            View("Answers", "Whether Prometheus can scrape the broker.", [(f"up{ONE}", "")], FAILS, "stat"),
            View("Connections", "Connections that are open now, and those of them without a complete CONNECT.",
                 [(f"brokerbed_connections{ONE}", "open"), (f"brokerbed_connecting{ONE}", "half open")], kind="stat"),
            View("Sessions", "Connected and disconnected sessions, including links.",
                 [(f"brokerbed_sessions{ONE}", "")], kind="stat"),
            View("Timers", "Timers that are set.", [(f"brokerbed_timers{ONE}", "")], kind="stat"),
            View("Retained", "Retained messages.", [(f"brokerbed_retained_messages{ONE}", "")], kind="stat"),
            View("Size of retained", "Topics and payloads.", [(f"brokerbed_retained_bytes{ONE}", "")], BYTES, "stat"),
            View("Store is blocked", "The store cannot be written, and clients wait.",
                 [(f"brokerbed_store_blocked{ONE}", "")], FAILS, "stat", is_bad_above=1),
        ],
        [
            View("From and to clients", "PUBLISH packets.",
                 [(f"rate(brokerbed_messages_received_total{ONE}[$__rate_interval])", "received"),
                  (f"rate(brokerbed_messages_delivered_total{ONE}[$__rate_interval])", "delivered")], PER_S),
            View("Bytes from clients", "All packets.",
                 [(f"rate(brokerbed_bytes_received_total{ONE}[$__rate_interval])", "received")], "Bps"),
        ],
        [
            View("To its neighbours", "Messages by kind.",
                 [(f"sum by (peer, kind) (rate(brokerbed_link_messages_total{ONE}[$__rate_interval]))",
                   "to {{peer}}: {{kind}}")], PER_S),
            View("Routing entries", "Subscriptions of clients, and entries of child links.",
                 [(f"brokerbed_routing_entries{ONE}", "{{scope}}")]),
        ],
        [
            View("Links", "1 while the link is connected; 1 if it leads to the parent; how often that changed.",
                 [(f"brokerbed_link_connected{ONE}", "{{peer}}"),
                  (f"brokerbed_link_upward{ONE}", "{{peer}}: parent"),
                  (f"brokerbed_placement_moves_total{ONE}", "moves")]),
            View("Waiting", "Messages in queues of sessions and links, and all that the broker has not finished with.",
                 [(f"brokerbed_session_queue_messages{ONE}", "in queues"),
                  (f"brokerbed_link_queue_messages{ONE}", "for {{peer}}"),
                  (f"brokerbed_messages_under_way{ONE}", "under way")]),
        ],
        [
            View("Errors", "Dropped messages by reason, rejected messages, protocol errors, store problems.",
                 [(f"rate(brokerbed_messages_dropped_total{ONE}[$__rate_interval])", "dropped: {{reason}}"),
                  (f"rate(brokerbed_messages_expired_total{ONE}[$__rate_interval])", "expired: {{place}}"),
                  (f"rate(brokerbed_messages_rejected_total{ONE}[$__rate_interval])", "rejected"),
                  (f"rate(brokerbed_protocol_errors_total{ONE}[$__rate_interval])", "protocol errors"),
                  (f"rate(brokerbed_store_problems_total{ONE}[$__rate_interval])", "store problems")], PER_S),
            View("Limits applied", "How often a limit was applied, by reason; rate: a client had to wait.",
                 [(f"rate(brokerbed_shed_total{ONE}[$__rate_interval])", "{{reason}}")], PER_S),
            View("How late its event loop is", "The mean lateness.",
                 [(mean_lag(ONE), "late")], SECONDS),
        ],
    ],
    of_one_broker=True,
)  # fmt: skip

SESSIONS = Dashboard(
    "brokerbed-sessions",
    "brokerbed: ON/OFF sessions",
    "Clients that connect and disconnect, and the messages that wait for them.",
    [
        [
            View("Connected", "Sessions that are ON.",
                 [('sum(brokerbed_client_sessions{run="$run", state="connected"})', "")], kind="stat"),
            View("Offline", "Sessions that are OFF.",
                 [('sum(brokerbed_client_sessions{run="$run", state="offline"})', "")], kind="stat"),
            View("Messages for offline clients", "Waiting, or sent and not acknowledged.",
                 [(f"sum(brokerbed_offline_messages{RUN})", "")], kind="stat"),
            View("Fullest queue", "As a part of its limit, in messages or in bytes.",
                 [(f"max(brokerbed_session_queue_fill_ratio{RUN})", "")], PERCENT, "stat", is_bad_above=0.8),
        ],
        [
            View("Sessions", "Sessions of clients.",
                 [(f"sum by (state) (brokerbed_client_sessions{RUN})", "{{state}}")]),
            View("How often clients connect", "Connections opened.",
                 [(f"sum by (broker) (rate(brokerbed_connections_opened_total{RUN}[$__rate_interval]))", "{{broker}}")],
                 PER_S),
        ],
        [
            View("Waiting messages", "Messages for clients, by whether the clients are connected.",
                 [(f"sum by (state) (brokerbed_client_queue_messages{RUN})", "{{state}}")]),
            View("Waiting bytes", "Bytes for clients, by whether the clients are connected.",
                 [(f"sum by (state) (brokerbed_client_queue_bytes{RUN})", "{{state}}")], BYTES),
        ],
        [
            View("How full queues are", "The fullest queue of each broker, including those of links.",
                 [(f"brokerbed_session_queue_fill_ratio{RUN}", "{{broker}}")], PERCENT),
            View("Bytes in all queues", "Queues of sessions and links.",
                 [(f"brokerbed_session_queue_bytes{RUN}", "{{broker}}")], BYTES),
        ],
        [
            View("Dropped, by reason", "offline: QoS 0 for a disconnected client; queue_full: the limit was reached.",
                 [(f"sum by (reason) (rate(brokerbed_messages_dropped_total{RUN}[$__rate_interval]))", "{{reason}}")],
                 PER_S),
            View("Waiting for clients: theory and measured", "Means over 30 s, and arrivals x delay by Little's law.",
                 [(f"broker:brokerbed_client_queue_messages:avg30s{RUN}", "{{broker}}"),
                  (f"brokerbed_predicted_queue_messages{RUN}", PREDICTED + ": {{broker}}")]),
        ],
    ],
)  # fmt: skip

MEASURED = "run:brokerbed_messages:rate30s"
PREDICTED_RATE = "brokerbed_predicted_messages_per_second"
PREDICTED_REMOTE = 'brokerbed_predicted_entries{run="$run", metric="table.remote_entries", broker!=""}'


def compared_rates(metric: str) -> list[Query]:
    """A rate over all links, measured and predicted."""
    return [
        (f'{MEASURED}{{run="$run", metric="{metric}"}}', "measured"),
        (f'{PREDICTED_RATE}{{run="$run", metric="{metric}", link=""}}', PREDICTED),
    ]


def compared_entries(metric: str) -> list[Query]:
    return [
        (f'run:brokerbed_entries:avg30s{{run="$run", metric="{metric}"}}', "measured"),
        (f'brokerbed_predicted_entries{{run="$run", metric="{metric}", broker=""}}', PREDICTED),
    ]


THEORY = Dashboard(
    "brokerbed-theory",
    "brokerbed: theory and measured",
    "Means over 30 s of wall time beside predictions. Verdicts come from `brokerbed run`, which uses the message log.",
    [
        [
            View("Model time", "Model time since the beginning of the run, including the warm-up.",
                 [(f"brokerbed_run_model_seconds{RUN}", "")], SECONDS, "stat"),
            View("Speed-up", "Model seconds per wall second. Rates here are per wall second.",
                 [(f"brokerbed_run_speedup{RUN}", "")], kind="stat"),
            View("Measured for", "Wall seconds since the warm-up; below 30 there is nothing to compare.",
                 [(f"brokerbed_run_measured_seconds{RUN}", "")], SECONDS, "stat"),
            View("Largest deviation", "The largest deviation of a rate over all links from its prediction.",
                 [(f"max(abs(run:brokerbed_messages:deviation_ratio{RUN}))", "")], PERCENT, "stat", is_bad_above=0.25),
        ],
        [
            View("Notifications over all links", "Per wall second.", compared_rates("rate.notifications"), PER_S),
            View("Control messages over all links", "Per wall second.", compared_rates("rate.control"), PER_S),
        ],
        [
            View("Remote entries", "Entries of all brokers.", compared_entries("table.remote_entries")),
            View("Local entries", "Entries of all brokers.", compared_entries("table.local_entries")),
        ],
        [
            View("Deviation", "0.1 is a tenth more than predicted. Predictions do not apply while a fault lasts.",
                 [(f"run:brokerbed_messages:deviation_ratio{RUN}", "{{metric}}")], PERCENT),
            View("Total, in model time", "rate.total of `brokerbed predict`, per model second.",
                 [(f'{MEASURED}{{run="$run", metric="rate.total"}} / on (run) brokerbed_run_speedup{RUN}', "measured"),
                  (f'{PREDICTED_RATE}{{run="$run", metric="rate.total"}} / on (run) brokerbed_run_speedup{RUN}',
                   PREDICTED)], PER_S),
        ],
        [
            View("Notifications, by link", "Per wall second.",
                 [('sum by (link) (link:brokerbed_messages:rate30s{run="$run", metric="rate.notifications"})',
                   "measured"),
                  (f'sum by (link) ({PREDICTED_RATE}{{run="$run", metric="rate.notifications", link!=""}})',
                   PREDICTED)], PER_S, "table"),
            View("Remote entries, by broker", "Means over 30 s.",
                 [('sum by (broker) (broker:brokerbed_entries:avg30s{run="$run", metric="table.remote_entries"})',
                   "measured"),
                  (f"sum by (broker) ({PREDICTED_REMOTE})", PREDICTED)], kind="table"),
        ],
    ],
)  # fmt: skip

DASHBOARDS = (NETWORK, BROKER, SESSIONS, THEORY)


def json_of(dashboard: Dashboard) -> str:
    builder = (
        board.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.about)
        .tags(["brokerbed"])
        .readonly()
        .refresh("5s")
        .time("now-15m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(board.DashboardLink("brokerbed").type(DashboardLinkType.DASHBOARDS).tags(["brokerbed"]).keep_time(True).include_vars(True))
        .with_variable(_variable("run", "label_values(brokerbed_connections, run)"))
    )  # fmt: skip
    if dashboard.of_one_broker:
        builder.with_variable(_variable("broker", f"label_values(brokerbed_connections{RUN}, broker)"))
    number = 0
    for row in dashboard.rows:
        for position, view in enumerate(row):
            number += 1
            width = WIDTH // len(row) + (WIDTH % len(row) if position + 1 == len(row) else 0)
            builder.with_panel(_panel(view, width).id(number))
    return json.dumps(builder.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(name: str, query: str) -> board.QueryVariable:
    refresh, sort = VariableRefresh.ON_TIME_RANGE_CHANGED, VariableSort.NATURAL_DESC
    return board.QueryVariable(name).label(name).query(query).datasource(SOURCE).refresh(refresh).sort(sort)


def _panel(view: View, width: int) -> stat.Panel | table.Panel | timeseries.Panel:
    panel: stat.Panel | table.Panel | timeseries.Panel
    if view.kind == "stat":
        panel = stat.Panel().graph_mode(BigValueGraphMode.NONE).thresholds(_thresholds(view.is_bad_above))
        panel.reduce_options(options.ReduceDataOptions().calcs(["lastNotNull"]))
    elif view.kind == "table":
        panel = table.Panel().transformations(_columns([legend for _, legend in view.queries]))
    else:
        panel = timeseries.Panel().min(0) if view.unit != PERCENT else timeseries.Panel()
        panel.override_by_regexp(f"/^{PREDICTED}/", [DynamicConfigValue("custom.lineStyle", {"fill": "dash"})])
    panel.title(view.title).description(view.about).datasource(SOURCE).unit(view.unit)
    panel.span(width).height(STAT_HEIGHT if view.kind == "stat" else HEIGHT)
    for number, (expression, legend) in enumerate(view.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        if view.kind != "line":
            query.instant()
        panel.with_target(query.format(PromQueryFormat.TABLE) if view.kind == "table" else query)
    return panel


def _columns(names: Sequence[str]) -> list[DataTransformerConfig]:
    """One row per link or broker, one column per query."""
    renamed = {f"Value #{chr(ord('A') + number)}": name for number, name in enumerate(names)}
    organised = {"renameByName": renamed, "excludeByName": {"Time": True}}
    return [DataTransformerConfig("merge", options={}), DataTransformerConfig("organize", options=organised)]


def _thresholds(is_bad_above: float | None) -> board.ThresholdsConfig:
    steps = [Threshold(None, "green")]
    if is_bad_above is not None:
        steps.append(Threshold(is_bad_above, "red"))
    return board.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.uid}.json").write_text(json_of(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
