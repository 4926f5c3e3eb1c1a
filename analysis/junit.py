"""Writes the headline rows and invariants of a comparison as JUnit XML test cases, which CI servers read."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from brokerbed.analysis.verdicts import AGREES, DIFFERS, Compared

if TYPE_CHECKING:  # they import Spark
    from brokerbed.analysis.jobs.analyse import Analysis, Point


def write(file: Path, analyses: "Sequence[Analysis]", allowed: Collection[str | None]) -> None:
    """A row whose verdict is allowed, but not `agrees`, becomes a skipped test case."""
    written(file, [_suite(point, allowed) for analysis in analyses for point in analysis.points])


def written(file: Path, suites: Sequence[ET.Element]) -> None:
    root = ET.Element("testsuites", name="brokerbed")
    root.extend(suites)
    ET.indent(root)
    file.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


def counted(suite: ET.Element) -> ET.Element:
    """The suite, with how many of its test cases failed or were skipped."""
    for kind, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(kind, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    return suite


def _suite(point: "Point", allowed: Collection[str | None]) -> ET.Element:
    scenario = point.runs[0].scenario
    at = ", ".join(f"{key}={value}" for key, value in scenario.at.items())
    name = f"{scenario.name} ({at})" if at else scenario.name
    suite = ET.Element("testsuite", name=name, time=f"{sum(run.wall_s for run in point.runs):.3f}")
    for row in point.headline:
        case = ET.SubElement(suite, "testcase", classname=name, name=" ".join((row.metric, *row.labels.values())))
        if row.verdict not in allowed:
            ET.SubElement(case, "failure", type=row.verdict or "no prediction", message=_message(row))
        elif row.verdict != AGREES:
            ET.SubElement(case, "skipped", message=_message(row))
    for invariant in point.invariants:
        case = ET.SubElement(suite, "testcase", classname=name, name=invariant.name)
        if not invariant.holds:
            failure = ET.SubElement(
                case, "failure", type="broken", message=f"{invariant.broken} of {invariant.checked}"
            )
            failure.text = "\n".join(invariant.offenders)
    return counted(suite)


def _message(row: Compared) -> str:
    if row.predicted is None:
        return f"there is no prediction; measured {row.measured}"
    if row.measured is None:
        return f"nothing was measured; predicted {row.predicted:.6g}"
    interval = "" if row.ci_low is None else f" (95% interval {row.ci_low:.6g} to {row.ci_high:.6g})"
    advice = "" if row.verdict == DIFFERS else "; measure longer"
    return f"measured {row.measured:.6g}{interval}, predicted {row.predicted:.6g}{advice}"
