"""`make pictures`: the pictures of the README, and of peers that roam, taken in a real browser (over three minutes).

`python -m tests.browser.pictures [quickstart | roaming]` renews some of them.
"""

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import expect

from tests.broker.running import until
from tests.browser.opening import Viewer, browser
from tests.live.running import BEGIN_S_MAX, Watched
from tests.local.commands import brokerbed

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTH, REPORT_HEIGHT = 1280, 1215  # the report down to the picture of all intervals
LIVE_AT = re.compile(r"^[1-9][0-9]{2} of")  # model seconds: some time into the measurement
LIVE_MS_MAX = 180_000.0
RUN_S_MAX = 300.0


def picture_of_live_page(viewer: Viewer, place: Path, scenario: str, image: Path, until_over: bool) -> None:
    process = brokerbed(place, "run", scenario, "--on", "local", "--live", "--out", place / "runs")
    run = Watched(process)
    try:
        until(lambda: bool(run.address) or process.poll() is not None, "the live page", BEGIN_S_MAX)
        page = viewer.open(run.address, WIDTH).page
        expect(page.locator("#now")).to_have_text(LIVE_AT, timeout=LIVE_MS_MAX)
        expect(page.locator("#compared tbody tr")).not_to_have_count(0)
        page.screenshot(path=image, full_page=True)
        page.close()
        if until_over:
            process.wait(RUN_S_MAX)
    finally:
        process.terminate()
        process.wait()
        run.close()


def quickstart(viewer: Viewer, place: Path) -> None:
    picture_of_live_page(viewer, place, "quickstart", IMAGES / "live.png", True)
    page = viewer.open(place / "runs" / "latest" / "report.html", WIDTH).page
    page.set_viewport_size({"width": WIDTH, "height": REPORT_HEIGHT})
    page.screenshot(path=IMAGES / "report.png")


def roaming(viewer: Viewer, place: Path) -> None:
    picture_of_live_page(viewer, place, "bricconi2000/roaming", IMAGES / "roaming.png", False)


PICTURES = {"quickstart": quickstart, "roaming": roaming}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures")
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], help="which runs (all)")
    for name in parser.parse_args().names or PICTURES:
        with TemporaryDirectory() as folder, browser() as viewer:
            PICTURES[name](viewer, Path(folder))
    print(f"renewed pictures in {IMAGES}")


if __name__ == "__main__":
    main()
    sys.exit(0)
