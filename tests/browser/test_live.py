"""The live page in a real browser, while a run goes on: numbers change, a click crashes that broker, nothing leaves the machine."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Seen, Viewer
from tests.live.running import Watched, watched

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
SEEN_MS_MAX = 60_000
LUMINANCE = (0.2126, 0.7152, 0.0722)
CONTRAST_MIN = 4.5  # WCAG 2.1, AA


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("live")) as it:
        yield it


@pytest.fixture(params=["light", "dark"])
def seen(run: Watched, viewer: Viewer, request: pytest.FixtureRequest) -> Iterator[Seen]:
    """Opened; nothing was complained about, and nobody else was asked, when the test is over."""
    it = viewer.open(run.address, scheme=request.param)
    expect(it.page.locator("#compared tbody tr")).to_have_count(4, timeout=SEEN_MS_MAX)
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


def test_what_can_be_pressed_has_a_name_and_text_has_contrast(page: "Page") -> None:
    page.get_by_role("button", name=re.compile("^broker left,")).click()
    unnamed = page.evaluate("""[...document.querySelectorAll('button, select, [role=button], [role=img], table')]
        .filter(it => !(it.getAttribute('aria-label') || it.textContent.trim() || it.labels?.length)).length""")
    assert unnamed == 0
    pairs = page.evaluate("""[...document.querySelectorAll('h1, h2, p, th, td, button, label, span')]
        .filter(it => it.textContent.trim() && it.checkVisibility())
        .map(it => {
            let behind = it;
            while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
            return [getComputedStyle(it).color, getComputedStyle(behind).backgroundColor];
        })""")
    assert len(pairs) > 20
    assert [pair for pair in pairs if contrast(*pair) < CONTRAST_MIN] == []


def test_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(it) / 255 for it in re.findall(r"\d+", colour)[:3]]
    linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return sum(weight * it for weight, it in zip(LUMINANCE, linear, strict=True))
