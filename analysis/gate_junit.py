"""Writes what `gate` found as JUnit XML test cases, which CI servers read."""

from pathlib import Path
from xml.etree import ElementTree as ET

from brokerbed.analysis.changes import CANNOT_TELL, WORSE
from brokerbed.analysis.gate import Gate, Point, text_of
from brokerbed.analysis.junit import counted, written


def write(file: Path, gate: Gate) -> None:
    """A row that is worse becomes a failed test case, and one that cannot be told a skipped one."""
    written(file, [_suite(gate.scenario, point) for point in gate.points])


def _suite(scenario: str, point: Point) -> ET.Element:
    at = ", ".join(f"{key}={value}" for key, value in point.at.items())
    name = f"{scenario} ({at})" if at else scenario
    suite = ET.Element("testsuite", name=name)
    for row in point.rows:
        case = ET.SubElement(suite, "testcase", classname=name, name=" ".join((row.metric, *row.labels.values())))
        if row.verdict == WORSE:
            ET.SubElement(case, "failure", type=WORSE, message=text_of(row))
        elif row.verdict == CANNOT_TELL:
            ET.SubElement(case, "skipped", message=text_of(row))
    for invariant in point.invariants:
        case = ET.SubElement(suite, "testcase", classname=name, name=invariant.name)
        if invariant.verdict == WORSE:
            ET.SubElement(case, "failure", type="broken", message="held in the base, and is broken now")
    return counted(suite)
