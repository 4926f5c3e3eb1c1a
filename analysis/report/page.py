"""The page: the verdict, what was run, figures, tables, and how to repeat the run. It loads no other file."""

from collections.abc import Sequence
from pathlib import Path

from brokerbed.analysis.assumptions import doubts
from brokerbed.analysis.report import figures, laws, parts
from brokerbed.analysis.report.bars import draw as draw_bars
from brokerbed.analysis.report.chart import draw as draw_chart
from brokerbed.analysis.report.curves import between
from brokerbed.analysis.report.data import Point, Report
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.report.tables import COMPARED, SIGNS, Cell, compared, figure, plain, table, times
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE
from brokerbed.scenario.units import NS_PER_S

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
UNFOLDED_MAX = 40  # brokers; tables of larger trees are folded
LISTED_MAX = 12  # peers and faults that are listed


def page(report: Report) -> str:
    """The whole file. The same report always gives the same bytes."""
    sections = [*_sections(report)]
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]
    body = [
        tag("a", "Skip to the report", href="#content", class_="skip"),
        _header(report),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *(section(*each) for each in sections), id="content"),
        tag("footer", tag("p", f"brokerbed {report.run.get('version', '')}. This file needs no network.")),
    ]
    return document(f"{report.experiment.name}: {_word(report).lower()}", body)


def document(title: str, body: Sequence[Html]) -> str:
    """A file that needs no other one."""
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", _file("style.css")),
    ]
    everything = tag("html", tag("head", *head), tag("body", *body, tag("script", _file("script.js"))), lang="en")
    return f"<!DOCTYPE html>\n{everything}\n"


def _file(name: str) -> Html:
    return Html("\n" + (HERE / name).read_text(encoding="utf-8"))


def section(name: str, title: str, content: Html) -> Html:
    return tag("section", tag("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title")


def _header(report: Report) -> Html:
    verdict = report.verdict
    banner = tag(
        "div", tag("i", SIGNS[verdict], aria_hidden="true"),
        tag("div", tag("p", _word(report), class_="word"), tag("p", *_reasons(report))),
        class_=f"banner {verdict}", role="status",
    )  # fmt: skip
    button = tag("button", "Light or dark", type="button", id="theme", hidden=True)
    return tag("header", tag("h1", report.experiment.name, button), banner, _warnings(report), _chips(report))


def _word(report: Report) -> str:
    if report.broken:
        return "Differs from theory, and an invariant is broken" if report.count(DIFFERS) else "An invariant is broken"
    if report.count(DIFFERS):
        return "Differs from theory"
    if report.count(None):
        return "Theory has no prediction for some rows"
    return "Not enough data to tell" if report.count(INCONCLUSIVE) else "Agrees with theory"


def _reasons(report: Report) -> list[str]:
    total = sum(len(point.headline) for point in report.points)
    words = {AGREES: "agree", DIFFERS: "differ", INCONCLUSIVE: "are inconclusive", None: "have no prediction"}
    counted = ((report.count(verdict), word) for verdict, word in words.items())
    verdict_counts = ", ".join(f"{count:,} {word}" for count, word in counted if count)
    where = f" at {len(report.points)} points" if report.is_sweep else ""
    broken = list(dict.fromkeys(invariant["name"] for _, invariant in report.broken))
    held = f"Invariants broken: {', '.join(broken)}." if broken else "Every invariant holds."
    longer = [row.longer for point in report.points for row in point.headline if row.longer is not None]
    advice = f" Measuring {times(max(longer))} × longer would give a verdict." if longer else ""
    return [f"Of {total:,} headline rows{where} {verdict_counts}.{advice} ", held]


def _warnings(report: Report) -> Html:
    """Everything that casts doubt on the verdict."""
    doubtful = [
        (assumption["name"], assumption["at"], point.at)
        for point in report.points
        for assumption in point.summary["assumptions"]
        if not assumption["holds"]
    ]
    notes = list(dict.fromkeys(str(note) for point in report.points for note in point.summary["notes"]))
    queues = [queue for point in report.points for queue in point.summary["unstable"]]
    unstable = list(dict.fromkeys(f"The {queue['stage']} queue at {queue['at']} is unstable." for queue in queues))
    lines = [*unstable[:5], *notes[:5]]
    lines += [f"{text[0].upper()}{text[1:]}." for text in doubts(doubtful)]
    return tag("ul", *(tag("li", line) for line in lines), class_="warnings") if lines else Html("")


def _chips(report: Report) -> Html:
    run = report.run
    seed = str(run["seed"])
    facts = [
        *([("point", report.points[0].at)] if not report.is_sweep and report.points[0].at else []),
        ("ground", str(run["ground"])),
        ("seed", seed if report.seeds == 1 else f"{report.seeds} seeds from {seed}"),
        ("brokers", _range([len(point.scenario.tree) for point in report.points])),
        ("routing", ", ".join(dict.fromkeys(point.scenario.routing for point in report.points))),
        (
            "measured",
            f"{_range([point.scenario.clock.measure // NS_PER_S for point in report.points])} s of model time",
        ),
        ("compared", f"{number(sum(point.summary['compared_seconds'] for point in report.points))} s in all"),
        ("started", str(run["started"]).replace("T", " ").replace("Z", " UTC")),
    ]
    return plain(facts)


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _sections(report: Report) -> list[tuple[str, str, Html]]:
    sections = _sweep(report) if report.is_sweep else _single(report.points[0])
    sections.append(("invariants-section", "Invariants", parts.invariants(report.points)))
    sections.append(("assumptions-section", "Assumptions", parts.assumptions(report.points)))
    sections.append(("repeat", "Repeat it", _repeat(report)))
    return sections


def _single(point: Point) -> list[tuple[str, str, Html]]:
    return [
        ("comparison", "Measured and predicted", parts.comparison(point)),
        ("run", "What was run", joined((parts.drawing(point), _workload(point)))),
        ("time", "What happened", parts.pictures(point)),
        ("detail", "Brokers, links, queues", parts.detail_tables(point)),
    ]


def _sweep(report: Report) -> list[tuple[str, str, Html]]:
    predicted = between(report.folder / "scenario.yaml", report.points)
    charts = [draw_chart(chart) for chart in figures.charts(report.points, report.experiment.name, predicted)]
    charts += map(draw_bars, figures.bar_charts(report.points))
    explanation = tag(
        "p", "Lines are predictions, marks are measurements with their 95% intervals; a ring means that they differ."
    )
    sections = [("figures", "Figures", joined((explanation, tag("div", *charts, class_="grid-of-charts"))))]
    sections.append(("points", "All points", _points(report)))
    chosen = [report.points[number] for number in report.chosen]
    trees = [_trees(chosen)]
    if len(chosen) < len(report.points):
        several = f"{len(chosen)} of {len(report.points)} points are drawn, one for each tree and routing"
        trees.insert(0, tag("p", f"{several}; analysis/compared.csv has the rows of all."))
    sections.append(("run", "What was run", joined((*trees, _workload(chosen[0])))))
    details = [
        tag("details", tag("summary", f"Point {point.number}: {point.at}"), parts.pictures(point),
            parts.detail_tables(point), open=place == 0 and len(point.scenario.tree) <= UNFOLDED_MAX)
        for place, point in enumerate(chosen)
    ]  # fmt: skip
    sections.append(("detail", "Point by point", joined(details)))
    return sections


def _trees(points: list[Point]) -> Html:
    """Drawings of the trees with their traffic; small trees are side by side."""
    if max(len(point.scenario.tree) for point in points) == 1:
        return tag("p", "A single broker.")
    return tag("div", *map(parts.small_drawing, points), class_="grid-of-trees")


def _points(report: Report) -> Html:
    keys = list(dict.fromkeys(key for point in report.points for key in point.scenario.at))
    lines = []
    for point in report.points:
        at = [_value(point.scenario.at.get(key, "")) for key in keys]
        lines += [
            (figure(point.number), *at, Cell(f"{row.metric} {row.place}".strip()), *compared(row))
            for row in point.headline
        ]
    return table("points-table", "Headline rows of every point", ("point", *keys, "metric", *COMPARED), lines)


def _value(value: object) -> Cell:
    """A cell with a swept value, which is sorted as a quantity if it is one."""
    amount = figures.quantity(value)
    return Cell("null" if value is None else str(value), amount, is_number=amount is not None)


def _workload(point: Point) -> Html:
    scenario = point.scenario
    facts = [("classes", f"{scenario.classes:,}"), ("copies of the peers", f"{scenario.copies:,}")]
    facts += [(name, laws.describe(law)) for name, law in laws.network_laws(scenario)]
    facts += [
        (
            f"publisher {publisher.id}",
            f"{publisher.topic} {laws.describe_places(publisher)}, {laws.describe_publisher(publisher)}",
        )
        for publisher in scenario.publishers[:LISTED_MAX]
    ]
    facts += [
        (
            f"subscriber {subscriber.id}",
            f"{subscriber.topic} {laws.describe_places(subscriber)}; {laws.describe_peer(subscriber)}",
        )
        for subscriber in scenario.subscribers[:LISTED_MAX]
    ]
    for name, [(count, links)] in list(point.series.get("moves_of", {}).items())[:LISTED_MAX]:
        facts.append((f"moves of {name}", f"{count:,.0f}, over {links:,.0f} links"))
    facts += [
        (f"requester {requester.id}", f"{requester.topic} at {requester.broker}, {number(requester.rate)}/s")
        for requester in scenario.requesters[:LISTED_MAX]
    ]
    facts += [
        (f"responder {responder.id}", f"{responder.topic} at {responder.broker}; {laws.describe_peer(responder.inbox)}")
        for responder in scenario.responders[:LISTED_MAX]
    ]
    for fault in point.summary["faults"][:LISTED_MAX]:
        begin, end = fault["seconds"]
        until = "never healed" if end is None else f"healed at {number(end)} s"
        facts.append((f"fault at {number(begin)} s", f"{fault['what']}, {until}"))
    return plain(facts)


def _repeat(report: Report) -> Html:
    run, machine = report.run, report.run.get("machine", {})
    seeds = f" --seeds {report.seeds}" if report.seeds > 1 else ""
    engines = "".join(f" --engine {url}" for url in run.get("testbed", {}).get("engines", ()))
    command = f"brokerbed run scenario.yaml --on {run['ground']} --seed {run['seed']}{seeds}{engines}"
    packages = ", ".join(f"{name} {version}" for name, version in run.get("packages", {}).items())
    facts = [
        ("seed", str(run["seed"])),
        ("brokerbed", f"{run.get('version')}, commit {run.get('commit') or 'unknown'}"),
        ("Python", str(machine.get("python"))),
        *([("packages", packages)] if packages else []),
        ("system", f"{machine.get('system')}, {machine.get('cpus')} processors"),
        ("run directory", report.folder.resolve().name),
        ("wall time", f"{number(run['wall_seconds'])} s for the first run"),
    ]
    scenario_text = tag("pre", tag("code", report.scenario_file), tabindex="0")
    return joined((
        tag("p", "With the file below as scenario.yaml:"), tag("pre", tag("code", command), tabindex="0"), plain(facts),
        tag("h3", "scenario.yaml"), scenario_text,
    ))  # fmt: skip
