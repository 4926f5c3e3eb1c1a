"""The live page in a real browser, while a run goes on: numbers change, a click crashes that broker, nothing leaves the machine."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.opening import Seen, Viewer
from tests.live.running import TEXT, Watched, watched

pytestmark = pytest.mark.needs("chromium")
SEEN_MS_MAX = 60_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("live")) as it:
        yield it


@pytest.fixture(params=["light", "dark"])
def seen(run: Watched, viewer: Viewer, request: pytest.FixtureRequest) -> Iterator[Seen]:
    """Opened; nothing was complained about, and nobody else was asked, when the test is over."""
    it = viewer.open(run.address, scheme=request.param)
    expect(it.page.locator("#compared tbody tr")).to_have_count(5, timeout=SEEN_MS_MAX)
    yield it
    it.page.close()
    assert it.stderr_warnings == []
    assert {url for url in it.requests if not url.startswith((run.address.partition("/?")[0], "data:"))} == set()


@pytest.fixture
def page(seen: Seen) -> Page:
    return seen.page


def test_numbers_change(page: Page) -> None:
    first = page.locator("#now").inner_text()
    assert re.fullmatch(r"starting: .*|(warming up, )?\d+ of 602 s of model time", first)
    expect(page.locator("#now")).not_to_have_text(first, timeout=SEEN_MS_MAX)
    measured = page.locator("#compared tbody tr", has_text="notifications").locator("td").nth(1)
    expect(measured).to_have_text(re.compile(r"\d"), timeout=SEEN_MS_MAX)


def test_model_time_that_has_not_begun_is_a_start_and_no_negative_time(page: Page) -> None:
    """Set by hand, as a page opened late has missed that moment."""
    told = {
        at: page.evaluate("(at) => { state = { ...state, now_s: at }; show(); return $('now').textContent; }", at)
        for at in (-1.4, -0.2, 0.0, 1.9, 2.0)
    }
    assert told == {
        -1.4: "starting: model time has not begun",
        -0.2: "starting: model time has not begun",
        0.0: "warming up, 0 of 602 s of model time",
        1.9: "warming up, 2 of 602 s of model time",
        2.0: "2 of 602 s of model time",
    }


def test_width_of_links_is_told_in_numbers(page: Page) -> None:
    """At the links themselves, and in the legend: the widest is the fastest. Rates set by hand: 3, 12 and 120 per second."""
    rates, legend = page.evaluate("""() => {
        Object.values(state.links).forEach((it, at) => { it.rates = [[1, 1, 1], [5, 6, 1], [100, 20, 0]][at]; });
        show();
        return ["svg .rate", "#legend .width"].map((it) => [...document.querySelectorAll(it)].map((text) => text.textContent));
    }""")
    assert rates == ["3.00/s", "12.00/s", "120/s"]
    assert legend == ["12.00 messages/s", "60.00 messages/s", "120 messages/s"]


def test_a_link_that_has_moved_leads_to_the_new_parent(page: Page) -> None:
    """Set by hand: low, which is below right, comes to top."""
    before, after, place, said = page.evaluate("""() => {
        const end = () => [lines.low.line, lines.low.hit].map((it) => [Number(it.getAttribute("x2")), Number(it.getAttribute("y2"))]);
        const before = end();
        state = { ...state, links: { ...state.links, low: { ...state.links.low, parent: "top" } } };
        show();
        return [before, end(), tree.places.top, lines.low.hit.getAttribute("aria-label")];
    }""")
    assert after == [place, place]
    assert before != after
    assert said.startswith("link low to top, ")


def test_names_are_text_whatever_they_contain(page: Page) -> None:
    """Set by hand, as no scenario may have such names: no element is made of them, and no script runs."""
    hostile = """<img src=x onerror="window.struck = 1">'><script>window.struck = 1</script>{{1}}</title>"""
    made, is_shown, struck = page.evaluate(
        """(name) => {
        tree.scenario = name;
        $("title").textContent = name;
        state = { ...state,
          compared: [...state.compared, { metric: "rate.control", of: name, predicted: 1, measured: 2 }],
          peers: [...state.peers, { peer: name, copies: 1, connected: 1, queue: 0, places: name }],
          faults: [...state.faults, { number: 4711, what: name, fault: 1 }] };
        show();
        const rows = ["compared", "peers", "faults"].map((it) => $(it).tBodies[0].lastElementChild.cells[0].textContent);
        return [document.querySelectorAll("img, script:not([src])").length, rows.every((it) => it.includes(name)), window.struck];
    }""",
        hostile,
    )
    assert (made, is_shown, struck) == (0, True, None)
    page.evaluate(
        """async (name) => {
        window.fetch = async () => ({ ok: false, json: async () => ({ error: name }) });
        await act("/strike", {});
    }""",
        hostile,
    )
    assert page.locator("#answer").inner_text() == hostile
    assert page.locator("#answer img, #answer script").count() == 0


def test_queues_have_axes(page: Page) -> None:
    """The upper end of the axis is the largest number that was seen, the ends below are model times."""
    most, first, last = page.evaluate("""() => {
        series.queues = [], times.length = 0;
        for (const queue of [3, 40, 7]) {
            for (const it of Object.values(state.brokers)) it.queue = 0;
            state.brokers.low.queue = queue;
            state.now_s = 100 + queue;
            show();
        }
        return ["queues-most", "queues-from", "queues-to"].map((it) => $(it).textContent);
    }""")
    assert (most, first, last) == ("40", "103 s", "107 s")
    assert "model time" in page.locator("#queues .x").inner_text()
    assert page.locator("#queues .y").inner_text().split()[-1] == "0"


def test_click_on_crash_crashes_that_broker_and_the_page_shows_it(
    page: Page, seen: Seen, request: pytest.FixtureRequest
) -> None:
    page.get_by_role("button", name=re.compile("^broker low,")).click()
    page.get_by_role("button", name="crash it now").click()
    expect(page.locator("#facts")).to_contain_text("crashed", timeout=SEEN_MS_MAX)
    expect(page.get_by_role("button", name=re.compile("^link low to right, not connected"))).to_be_attached(
        timeout=SEEN_MS_MAX
    )
    expect(page.locator("#faults tbody tr").last).to_contain_text("crash low")
    seen.shoot(f"live-{request.node.callspec.params['seen']}")
    page.get_by_role("button", name="repair it now").click()
    expect(page.locator("#facts")).to_contain_text("serving", timeout=SEEN_MS_MAX)


def test_keyboard_is_enough(page: Page) -> None:
    """Tab to a broker, Enter chooses it, Tab on to its button; a link is cut and repaired by the list."""
    page.get_by_role("button", name=re.compile("^broker left,")).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#pick")).to_have_value("broker left")
    page.locator("#pick").select_option("link left")
    page.locator("#pick").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "cut it now"
    page.keyboard.press("Enter")
    expect(page.locator("#facts")).to_contain_text("cut;", timeout=SEEN_MS_MAX)
    page.get_by_role("button", name="repair it now").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#facts")).to_contain_text("connected;", timeout=SEEN_MS_MAX)


def test_no_barriers(page: Page, seen: Seen) -> None:
    page.get_by_role("button", name=re.compile("^broker left,")).click()
    expect(page.get_by_role("button", name="crash it now")).to_be_visible()
    assert seen.barriers() == []


def test_nothing_is_cut_off(page: Page, seen: Seen, request: pytest.FixtureRequest) -> None:
    page.locator("#pick").select_option("broker low")
    expect(page.get_by_role("button", name="crash it now")).to_be_visible()
    for width in (1280, 420, 390):
        page.set_viewport_size({"width": width, "height": 800})
        seen.shoot(f"live-{request.node.callspec.params['seen']}-{width}")
        assert seen.sticking_out() == [], width


def test_nothing_can_be_struck_when_the_measured_time_is_over(tmp_path: Path, viewer: Viewer) -> None:
    with watched(tmp_path, text=TEXT.replace("measure: 600s", "measure: 30s")) as short:
        seen = viewer.open(short.address)
        page = seen.page
        expect(page.locator("#now")).to_contain_text("the measured time is over", timeout=SEEN_MS_MAX)
        page.get_by_role("button", name=re.compile("^broker low,")).click()
        expect(page.get_by_role("button", name="crash it now")).to_be_disabled()
        expect(page.get_by_role("button", name="disconnect: s")).to_be_disabled()
        page.close()
    assert seen.stderr_warnings == []
