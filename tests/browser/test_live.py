"""The live page in a real browser, while a run goes on: numbers change, a click crashes that broker, nothing leaves the machine."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.opening import Seen, Viewer
from tests.live.running import TEXT, Watched, watched

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
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
    assert it.complaints == []
    assert {url for url in it.requests if not url.startswith((run.address.partition("/?")[0], "data:"))} == set()


@pytest.fixture
def page(seen: Seen) -> "Page":
    return seen.page


def test_numbers_change(page: "Page") -> None:
    first = page.locator("#now").inner_text()
    assert re.fullmatch(r"(warming up, )?\d+ of 602 s of model time", first)
    expect(page.locator("#now")).not_to_have_text(first, timeout=SEEN_MS_MAX)
    measured = page.locator("#compared tbody tr", has_text="notifications").locator("td").nth(1)
    expect(measured).to_have_text(re.compile(r"\d"), timeout=SEEN_MS_MAX)


def test_click_on_crash_crashes_that_broker_and_the_page_shows_it(
    page: "Page", seen: Seen, request: pytest.FixtureRequest
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


def test_keyboard_is_enough(page: "Page") -> None:
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


def test_no_barriers(page: "Page", seen: Seen) -> None:
    page.get_by_role("button", name=re.compile("^broker left,")).click()
    expect(page.get_by_role("button", name="crash it now")).to_be_visible()
    assert seen.barriers() == []


def test_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_nothing_can_be_struck_when_the_measured_time_is_over(tmp_path: Path, viewer: Viewer) -> None:
    with watched(tmp_path, text=TEXT.replace("measure: 600s", "measure: 30s")) as short:
        seen = viewer.open(short.address)
        page = seen.page
        expect(page.get_by_role("button", name="disconnect: s")).to_be_enabled(timeout=SEEN_MS_MAX)
        expect(page.locator("#now")).to_contain_text("the measured time is over", timeout=SEEN_MS_MAX)
        page.get_by_role("button", name=re.compile("^broker low,")).click()
        expect(page.get_by_role("button", name="crash it now")).to_be_disabled()
        expect(page.get_by_role("button", name="disconnect: s")).to_be_disabled()
        page.close()
    assert seen.complaints == []
