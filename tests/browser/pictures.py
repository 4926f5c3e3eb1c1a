"""`make pictures`: the pictures of the README, taken from a run of the quickstart scenario in a real browser (a minute and a half)."""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import expect

from tests.broker.running import until
from tests.browser.opening import browser
from tests.live.running import BEGIN_S_MAX, Watched
from tests.local.commands import brokerbed

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTH, REPORT_HEIGHT = 1280, 1215  # the report down to the picture of all intervals
LIVE_AT = re.compile(r"^[1-9][0-9]{2} of")  # model seconds: some time into the measurement
RUN_S_MAX = 300.0


def main() -> None:
    with TemporaryDirectory() as name, browser() as viewer:
        place = Path(name)
        process = brokerbed(place, "run", "quickstart", "--live", "--out", place / "runs")
        run = Watched(process)
        try:
            until(lambda: bool(run.address) or process.poll() is not None, "the live page", BEGIN_S_MAX)
            page = viewer.open(run.address, WIDTH).page
            expect(page.locator("#now")).to_have_text(LIVE_AT, timeout=60_000)
            expect(page.locator("#compared tbody tr")).not_to_have_count(0)
            page.screenshot(path=IMAGES / "live.png", full_page=True)
            page.close()
            process.wait(RUN_S_MAX)
        finally:
            process.terminate()
            process.wait()
            run.close()
        page = viewer.open(place / "runs" / "latest" / "report.html", WIDTH).page
        page.set_viewport_size({"width": WIDTH, "height": REPORT_HEIGHT})
        page.screenshot(path=IMAGES / "report.png")
    print(f"wrote {IMAGES / 'live.png'} and {IMAGES / 'report.png'}")


if __name__ == "__main__":
    main()
    sys.exit(0)
