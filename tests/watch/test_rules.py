"""The shipped Prometheus configuration, checked by Prometheus' own tool; rules with values worked out by hand."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.needs import path_of
from tests.watch.expressions import DEPLOY, RULES, alerts, rules

CONFIG = DEPLOY / "prometheus" / "prometheus.yml"
OF_RUN = 'run="r", scenario="x", ground="local"'
SAMPLES = 90  # one per second

# b1 sends 20 notifications/s to b0 and b0 10/s to b1; b1 subscribes 3 times and unsubscribes 2 times a second. Resyncs do not count.
# Theory says 25 notifications/s and 8 control messages/s: 30 is a fifth too much, and 5 by three eighths too little.
SERIES = {
    f'brokerbed_link_messages_total{{{OF_RUN}, broker="b1", peer="b0", kind="notification"}}': "0+20x{n}",
    f'brokerbed_link_messages_total{{{OF_RUN}, broker="b0", peer="b1", kind="notification"}}': "0+10x{n}",
    f'brokerbed_link_messages_total{{{OF_RUN}, broker="b1", peer="b0", kind="subscribe"}}': "0+3x{n}",
    f'brokerbed_link_messages_total{{{OF_RUN}, broker="b1", peer="b0", kind="unsubscribe"}}': "0+2x{n}",
    f'brokerbed_link_messages_total{{{OF_RUN}, broker="b1", peer="b0", kind="resync"}}': "0+7x{n}",
    f'brokerbed_predicted_messages_per_second{{{OF_RUN}, metric="rate.notifications"}}': "25x{n}",
    f'brokerbed_predicted_messages_per_second{{{OF_RUN}, metric="rate.notifications", link="b1>b0"}}': "15x{n}",
    f'brokerbed_predicted_messages_per_second{{{OF_RUN}, metric="rate.control"}}': "8x{n}",
    f'brokerbed_predicted_messages_per_second{{{OF_RUN}, metric="rate.total"}}': "33x{n}",
    f"brokerbed_run_measured_seconds{{{OF_RUN}}}": "0+1x{n}",
    f'brokerbed_routing_entries{{{OF_RUN}, broker="b0", scope="remote"}}': "4x{n}",
    f'brokerbed_routing_entries{{{OF_RUN}, broker="b1", scope="remote"}}': "2x{n}",
    f'brokerbed_routing_entries{{{OF_RUN}, broker="b1", scope="local"}}': "9x{n}",
}
EXPECTED: dict[str, dict[tuple[tuple[str, str], ...], float]] = {
    "link:brokerbed_messages:rate30s": {
        (("link", "b1>b0"), ("metric", "rate.notifications")): 20.0,
        (("link", "b0>b1"), ("metric", "rate.notifications")): 10.0,
        (("link", "b1>b0"), ("metric", "rate.control")): 5.0,
    },
    "run:brokerbed_messages:rate30s": {
        (("metric", "rate.notifications"),): 30.0,
        (("metric", "rate.control"),): 5.0,
        (("metric", "rate.total"),): 35.0,
    },
    "round(run:brokerbed_messages:deviation_ratio, 0.0001)": {
        (("metric", "rate.notifications"),): 0.2,
        (("metric", "rate.control"),): -0.375,
        (("metric", "rate.total"),): 0.0606,
    },
    "run:brokerbed_entries:avg30s": {
        (("metric", "table.remote_entries"),): 6.0,
        (("metric", "table.local_entries"),): 9.0,
    },
}


def promtool(*arguments: object) -> str:
    done = subprocess.run([path_of("promtool"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def judged(folder: Path, series: dict[str, str], **expected: Any) -> str:
    """`promtool test rules`, with these series from time zero."""
    inputs = [{"series": it, "values": values.replace("{n}", str(SAMPLES))} for it, values in series.items()]
    test = {"interval": "1s", "input_series": inputs, **expected}
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1s", "tests": [test]}))
    return promtool("test", "rules", file)


def series_name(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    shown = "" if "(" in name else name  # functions drop the name
    own = "".join(f', {key}="{value}"' for key, value in labels)
    return f"{shown}{{{OF_RUN}{own}}}"


def test_configuration_and_rules_are_valid() -> None:
    assert "is valid prometheus config file" in promtool("check", "config", CONFIG)
    assert f"{len(rules())} rules found" in promtool("check", "rules", "--lint-fatal", RULES)


def test_targets_of_the_compose_file_are_its_published_metrics() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published = {
        name: service["ports"][1].partition(":-")[2].partition("}")[0]
        for name, service in services.items()
        if "ports" in service
    }
    groups = json.loads((DEPLOY / "prometheus" / "compose" / "tree.json").read_text())
    assert {it["labels"]["broker"]: it["targets"][0] for it in groups} == {
        name: f"127.0.0.1:{port}" for name, port in published.items()
    }


def test_measured_values_have_the_labels_of_predicted_ones(tmp_path: Path) -> None:
    cases = [
        {
            "expr": name,
            "eval_time": "60s",
            "exp_samples": [{"labels": series_name(name, labels), "value": value} for labels, value in found.items()],
        }
        for name, found in EXPECTED.items()
    ]
    assert "SUCCESS" in judged(tmp_path, SERIES, promql_expr_test=cases)


def divergence(at: str, metrics: dict[str, str]) -> dict[str, Any]:
    """The alert of these metrics, with how far they are off."""
    labels = {"severity": "warning", "run": "r", "scenario": "x", "ground": "local"}
    found = [
        {
            "exp_labels": labels | {"metric": metric},
            "exp_annotations": {"summary": f"{metric} of r is {off}/s away from its prediction."},
        }
        for metric, off in metrics.items()
    ]
    return {"eval_time": at, "alertname": "DivergesFromPrediction", "exp_alerts": found}


def test_divergence_needs_more_than_a_quarter_and_chance(tmp_path: Path) -> None:
    """25 a second may be off by 25/4 + 4 sqrt(25/30) = 9.9, and 5 too many is fine; 40 too many is not.

    It is judged from 30 s of measured time on, and fires 15 s later.
    """
    fine = judged(tmp_path, SERIES, alert_rule_test=[divergence("80s", {})])
    assert "SUCCESS" in fine
    flooded = f'brokerbed_link_messages_total{{{OF_RUN}, broker="b1", peer="b0", kind="notification"}}'
    off = {"rate.notifications": "45", "rate.total": "42"}
    moments = [divergence("30s", {}), divergence("44s", {}), divergence("50s", off)]
    assert "SUCCESS" in judged(tmp_path, SERIES | {flooded: "0+60x{n}"}, alert_rule_test=moments)


def test_loss_is_not_what_mqtt_wants_dropped(tmp_path: Path) -> None:
    reasons = ("offline", "expired", "session_ended", "queue_full")
    dropped = {f'brokerbed_messages_dropped_total{{{OF_RUN}, broker="b1", reason="{it}"}}': "0+1x{n}" for it in reasons}
    expected = {
        "exp_labels": {"severity": "critical", "run": "r", "scenario": "x", "ground": "local", "broker": "b1"}
        | {"reason": "queue_full"},
        "exp_annotations": {"summary": "Broker b1 (r) dropped messages: queue_full."},
    }
    case = {"eval_time": "60s", "alertname": "MessagesLost", "exp_alerts": [expected]}
    assert "SUCCESS" in judged(tmp_path, dropped, alert_rule_test=[case])


LINK = f'brokerbed_link_connected{{{OF_RUN}, broker="b1", peer="b0"}}'
SILENT = f'brokerbed_link_silent_seconds{{{OF_RUN}, broker="b1", peer="b0"}}'
LAG, LOOKS = (f'brokerbed_loop_lag_{it}_total{{{OF_RUN}, broker="b1"}}' for it in ("seconds", "samples"))
OF_LINK = {"broker": "b1", "peer": "b0"}
LINK_DOWN = "The link of b1 to b0 (r) is down."


@pytest.mark.parametrize(
    ("alert", "series", "waits_s", "labels", "summary"),
    [
        ("BrokerDown", {f'up{{{OF_RUN}, job="brokerbed", broker="b1"}}': "1x19 0x60"}, 25,
         {"job": "brokerbed", "broker": "b1"}, "Broker b1 of r does not answer."),
        ("LinkDown", {LINK: "1x19 0x60", SILENT: "0x90"}, 25, OF_LINK, LINK_DOWN),
        # Nobody has said anything since 4 s; from 20 s on that is more than 15 s.
        ("LinkDown", {LINK: "1x90", SILENT: "0x4 1+1x80"}, 25, OF_LINK, LINK_DOWN),
        ("QueueFilling", {f'brokerbed_session_queue_fill_ratio{{{OF_RUN}, broker="b1"}}': "0.8x19 0.9x60"}, 30,
         {"broker": "b1"}, "A queue at b1 (r) is at 90% of its limit."),
        # Four looks a second, each 30 ms late: known from the second sample on.
        ("BrokerLate", {LAG: "0+0.12x90", LOOKS: "0+4x90"}, 16, {"broker": "b1"},
         "Broker b1 (r) is 30ms late: this machine is too slow for it."),
    ],
)  # fmt: skip
def test_alert_fires_when_it_has_held_as_long_as_is_shipped(
    tmp_path: Path, alert: str, series: dict[str, str], waits_s: int, labels: dict[str, str], summary: str
) -> None:
    (rule,) = (it for it in rules() if it.get("alert") == alert)
    own = rule["labels"] | {"run": "r", "scenario": "x", "ground": "local"} | labels
    fires = {"exp_labels": own, "exp_annotations": {"summary": summary}}
    moments = [
        {"eval_time": f"{at_s}s", "alertname": alert, "exp_alerts": found}
        for at_s, found in ((waits_s - 1, []), (waits_s, [fires]))
    ]
    assert "SUCCESS" in judged(tmp_path, series, alert_rule_test=moments)


def test_alerts_are_documented_with_how_long_they_must_hold() -> None:
    text = (DEPLOY.parent / "docs" / "monitoring.md").read_text(encoding="utf-8")
    for rule in rules():
        if "alert" in rule:
            (row,) = [line for line in text.splitlines() if line.startswith(f"| `{rule['alert']}` |")]
            assert row.endswith(f"| {rule['for'].replace('s', ' s')} |" if "for" in rule else "| at once |")
    assert len(alerts()) == 6
