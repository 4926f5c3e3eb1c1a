"""A real Chromium, Debian's, driven by playwright."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.needs import path_of

SCREENSHOTS = Path(__file__).parent / "screenshots"  # kept as artefacts
STICKING_OUT = """() => {
  const told = (it) => `${it.tagName.toLowerCase()}${it.id && "#" + it.id}.${it.getAttribute("class") || ""}: ${it.textContent.trim().slice(0, 40)}`;
  const isSeen = (it) => it.checkVisibility() && !it.closest(".skip, .unseen, option");
  const found = [];
  for (const it of document.body.querySelectorAll("*")) {
    if (!isSeen(it) || it.ownerSVGElement) continue;
    const box = it.getBoundingClientRect();
    if (box.left < -0.5 || box.right > innerWidth + 0.5) found.push(`beyond the page: ${told(it)}`);
    if (!(it instanceof SVGElement) && it.scrollWidth > it.clientWidth + 1 && getComputedStyle(it).display !== "inline")
      found.push(`wider than its box: ${told(it)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!isSeen(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter((it) => isSeen(it) && it.textContent.trim());
    const boxes = texts.map((it) => it.getBoundingClientRect());
    texts.forEach((it, at) => {
      const box = boxes[at];
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`outside its picture: ${told(it)}`);
      for (let other = 0; other < at; other++) {
        const b = boxes[other];
        const across = Math.min(box.right, b.right) - Math.max(box.left, b.left);
        const down = Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top);
        if (across > 2 && down > 5) found.push(`covers another text: ${told(it)} and ${told(texts[other])}`);
      }
    });
  }
  return found;
}"""


@dataclass
class Seen:
    """A page, and what it complained of or asked for."""

    page: Page
    stderr_warnings: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def shoot(self, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def sticking_out(self) -> list[str]:
        """What a reader does not see without scrolling sideways, or at all: boxes that are too narrow for what is in them,
        texts that leave their picture or cover one another."""
        return list(self.page.evaluate(STICKING_OUT))

    def barriers(self) -> list[str]:
        """What axe-core finds that keeps people out: contrast, names, roles, headings (WCAG 2, A and AA, and good practice)."""
        found = Axe().run(self.page).response
        return [
            f"{rule['id']} ({rule['impact']}): {node['target']}: {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]


class Viewer:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def open(self, file: Path | str, width: int = 1280, scheme: str = "light") -> Seen:
        """A file, or a page at an address."""
        page = self._browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        seen = Seen(page)
        page.on("console", lambda message: seen.stderr_warnings.append(message.text))
        page.on("pageerror", lambda error: seen.stderr_warnings.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(file if isinstance(file, str) else file.as_uri())
        return seen


@contextmanager
def browser() -> Iterator[Viewer]:
    """It has an event loop in this thread while it is open, which other tests would mind."""
    program = path_of("chromium")
    with sync_playwright() as it:
        chromium = it.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield Viewer(chromium)
        chromium.close()
