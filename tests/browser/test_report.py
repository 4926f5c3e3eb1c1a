"""report.html as a reader has it: in a browser, by mouse and by keyboard, light and dark, wide and narrow, on paper."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brokerbed.analysis.report import write
from brokerbed.analysis.series import Sample
from tests.browser.opening import SCREENSHOTS, Seen, Viewer
from tests.report.made import COMMUTE, FAULTED, SMALL_SWEEP, SWEEP, TRACED, faulted_samples, made

ROOM = 10_000_000
CONTRAST_MIN = 4.5  # WCAG 2, AA, for text
CONTRAST_OF = """(selector) => {
  const channel = (it) => { const c = it / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const element = document.querySelector(selector);
  let behind = element;
  while (behind && /rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const back = parse(getComputedStyle(behind || document.body).backgroundColor);
  const ink = getComputedStyle(element)[element instanceof SVGElement ? "fill" : "color"];
  const [a, b] = [light(parse(ink)), light(back)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""


@pytest.fixture(scope="module")
def faulted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    return write(made(folder / "faulted", FAULTED, samples=faulted_samples(), offenders=("p.7 is lost",)))


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long ids, several faults at once, rows that cannot be told."""
    long = "a-publisher-with-a-very-long-name-indeed"
    text = FAULTED.replace("id: p,", f"id: {long},").replace("id: s,", "id: a-subscriber-with-quite-a-long-name,")
    faults = [Sample(0, "fault", f"disconnect {long}{at}", 31.0 + at, 33.0 + at) for at in range(3)]
    folder = made(tmp_path_factory.mktemp("browser") / "long", text, samples=[*faulted_samples(), *faults])
    file = folder / "analysis" / "compared.parquet"
    rows = [{**row, "verdict": "inconclusive", "longer": 12345.6} for row in pq.read_table(file).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return write(folder)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole figure: 127 brokers, 140 points."""
    return write(made(tmp_path_factory.mktemp("browser") / "sweep", SWEEP))


@pytest.fixture(scope="module")
def small_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(made(tmp_path_factory.mktemp("browser") / "small", SMALL_SWEEP))


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A peer with recorded connectivity."""
    files = {COMMUTE.name: COMMUTE.read_text(encoding="utf-8")}
    return write(made(tmp_path_factory.mktemp("browser") / "traced", TRACED, files=files))


def column(seen: Seen, table: str, number: int) -> list[str]:
    texts = seen.page.locator(f"#{table} tbody tr:visible td:nth-child({number})").all_inner_texts()
    return [it.strip() for it in texts]


@pytest.mark.parametrize("which", ["faulted", "sweep", "traced"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (420, "light")])
def test_opens_in_silence(
    viewer: Viewer, request: pytest.FixtureRequest, which: str, width: int, scheme: str
) -> None:  # fmt: skip
    file: Path = request.getfixturevalue(which)
    assert file.stat().st_size < ROOM
    seen = viewer.open(file, width, scheme)
    seen.shoot(f"{which}-{scheme}-{width}")
    assert seen.stderr_warnings == []
    assert [it for it in seen.requests if not it.startswith("data:")] == [file.as_uri()]
    assert seen.page.locator("h1").is_visible()


@pytest.mark.parametrize("which", ["faulted", "long_names", "small_sweep", "sweep", "traced"])
def test_nothing_is_cut_off(viewer: Viewer, request: pytest.FixtureRequest, which: str) -> None:
    """With everything unfolded, at the width of a laptop and of a telephone: tables, pictures and the texts in them."""
    seen = viewer.open(request.getfixturevalue(which))
    seen.page.evaluate("for (const it of document.querySelectorAll('details')) it.open = true")
    for width in (1280, 420):
        seen.page.set_viewport_size({"width": width, "height": 900})
        if which == "long_names":
            seen.shoot(f"{which}-{width}")
        assert seen.sticking_out() == [], width


def test_what_is_cut_off_is_found(viewer: Viewer) -> None:
    page = """<body style="margin:0"><div style="width:80px;overflow:auto"><p style="width:200px">too wide</p></div>
      <svg width="90" height="40"><text x="60" y="20">leaves it</text><text x="5" y="20">one</text><text x="8" y="21">two</text></svg>"""
    found = viewer.open(f"data:text/html,{page}").sticking_out()
    assert sorted(it.partition(":")[0] for it in found) == [
        "covers another text",
        "outside its picture",
        "wider than its box",
    ]


def test_telephone_shows_every_cell_of_a_row_with_its_name(viewer: Viewer, faulted: Path) -> None:
    seen = viewer.open(faulted, 420)
    cell = seen.page.locator("#headline-0 tbody tr").first.locator("td").last
    assert cell.inner_text().endswith("agrees")
    assert seen.page.evaluate("(it) => getComputedStyle(it, '::before').content", cell.element_handle()) == '"verdict"'
    box = cell.bounding_box()
    assert box is not None
    assert 0 <= box["x"] < box["x"] + box["width"] <= 420


def test_tables_sort_by_mouse_and_keyboard(viewer: Viewer, faulted: Path) -> None:
    seen = viewer.open(faulted)
    names = [f"b{number}" for number in range(7)]
    assert column(seen, "brokers-0", 1) == names
    heading = seen.page.locator("#brokers-0 th", has_text="broker").first
    button = heading.locator("button")
    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    button.focus()
    seen.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(seen, "brokers-0", 1) == names[::-1]
    seen.page.locator("#brokers-0 th button", has_text="remote entries").click()
    values = [float(it.replace(",", "")) for it in column(seen, "brokers-0", 3)]
    assert values == sorted(values)
    assert values[-1] > values[0]


def test_what_has_no_value_comes_last_both_ways(viewer: Viewer, faulted: Path) -> None:
    """There is no control traffic down a link, so half of the rows have none."""
    seen = viewer.open(faulted)
    button = seen.page.locator("#links-0 th button", has_text="control/s")
    for _ in range(2):
        button.click()
        assert [it == "–" for it in column(seen, "links-0", 6)] == [False] * 6 + [True] * 6


def test_tables_filter(viewer: Viewer, sweep: Path) -> None:
    """20 numbers of subscriptions on T8, six headline rows each; several words must all be there."""
    seen = viewer.open(sweep)
    field = seen.page.get_by_label("Filter").first
    field.fill("rate.control")
    assert seen.page.locator("#points-table .rows").inner_text() == "140 of 840 rows"
    assert set(column(seen, "points-table", 4)) == {"rate.control"}
    field.fill("rate.control 700000")
    assert len(column(seen, "points-table", 1)) == 7
    field.fill("")
    assert seen.page.locator("#points-table .rows").inner_text() == "840 rows"


def test_focus_is_seen(viewer: Viewer, faulted: Path) -> None:
    seen = viewer.open(faulted)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.textContent") == "Skip to the report"
    for _ in range(3):
        seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "selector", ["svg .tick", "svg .name", "svg .fault"],
)  # fmt: skip
def test_contrast_in_pictures(viewer: Viewer, faulted: Path, scheme: str, selector: str) -> None:
    seen = viewer.open(faulted, scheme=scheme)
    assert seen.page.evaluate(CONTRAST_OF, selector) >= CONTRAST_MIN


@pytest.mark.parametrize("which", ["faulted", "small_sweep", "traced"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_barriers(viewer: Viewer, request: pytest.FixtureRequest, which: str, scheme: str) -> None:
    seen = viewer.open(request.getfixturevalue(which), scheme=scheme)
    seen.page.evaluate("for (const it of document.querySelectorAll('details')) it.open = true")
    assert seen.barriers() == []


def test_barriers_are_found(viewer: Viewer) -> None:
    page = "<html lang=en><title>t</title><main><h1>h</h1><button></button><p style='color:%23999'>pale</p></main>"
    found = viewer.open(f"data:text/html,{page}").barriers()
    assert sorted(it.split()[0] for it in found) == ["button-name", "color-contrast"]


def test_light_and_dark_by_hand(viewer: Viewer, faulted: Path) -> None:
    seen = viewer.open(faulted)
    before = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    seen.page.get_by_role("button", name="Light or dark").click()
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_prints(viewer: Viewer, faulted: Path, sweep: Path) -> None:
    """On paper it is light, and what only a screen needs is gone."""
    for name, file in (("faulted", faulted), ("sweep", sweep)):
        seen = viewer.open(file, scheme="dark")
        SCREENSHOTS.mkdir(exist_ok=True)
        seen.page.pdf(path=SCREENSHOTS / f"{name}.pdf", format="A4")
        assert (SCREENSHOTS / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        seen.page.emulate_media(media="print")
        assert not seen.page.locator("nav").is_visible()
        assert not seen.page.locator("#theme").is_visible()
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert seen.stderr_warnings == []
