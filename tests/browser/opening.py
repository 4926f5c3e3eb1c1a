"""A real Chromium, Debian's, driven by playwright; where one of the two is missing the tests say so and are skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENSHOTS = Path(__file__).parent / "screenshots"  # kept as artefacts


@dataclass
class Seen:
    """A page, and what it complained of or asked for."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def shoot(self, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def barriers(self) -> list[str]:
        """What axe-core finds that keeps people out: contrast, names, roles, headings (WCAG 2, A and AA, and good practice)."""
        found = pytest.importorskip("axe_playwright_python.sync_playwright").Axe().run(self.page).response
        return [
            f"{rule['id']} ({rule['impact']}): {node['target']}: {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]


class Viewer:
    def __init__(self, browser: "Browser") -> None:
        self._browser = browser

    def open(self, file: Path | str, width: int = 1280, scheme: str = "light") -> Seen:
        """A file, or a page at an address."""
        page = self._browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        seen = Seen(page)
        page.on("console", lambda message: seen.complaints.append(message.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(file if isinstance(file, str) else file.as_uri())
        return seen


@contextmanager
def browser() -> Iterator[Viewer]:
    """It has an event loop in this thread while it is open, which other tests would mind."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as it:
        chromium = it.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield Viewer(chromium)
        chromium.close()
