"""How quick the web page is, in Chromium: the first paint, and how often it shows new figures.

It needs playwright and Chromium, which are there where Headgate is developed; without them there is
a sentence instead of figures. The first paint is what the browser itself has measured, in a profile
without a cache; the page marks every time it has drawn the subtasks of a vertex.
"""

import shutil
import time
from contextlib import closing
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.wide_job import WIDE, WideJob
from headgate.base.settings import RestSettings
from headgate.observe.web.server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession

SUBTASKS: Final = 1_000
WATCH_S: Final = 10.0
PAINTS: Final = 5
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
DRAWN: Final = "headgate:subtasks"
"""The page's mark: so many subtasks are drawn."""

FIRST_PAINT: Final = """() => new Promise((resolve) =>
  new PerformanceObserver((list) => {
    const paint = list.getEntries().find(({ name }) => name === "first-contentful-paint");
    if (paint) resolve(paint.startTime);
  }).observe({ type: "paint", buffered: true }))"""
MARKS: Final = """([name, subtasks]) => performance.getEntriesByName(name)
  .filter(({ detail }) => detail === subtasks).map(({ startTime }) => startTime)"""


def page_figures() -> dict[str, Any]:
    """Of a page that shows a job with 1,000 subtasks."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if find_spec("playwright") is None or found is None:
        return {"page": "not measured: it needs playwright (pip install playwright) and Chromium"}
    from playwright.sync_api import sync_playwright

    with closing(PageServer(RestSettings(port=0))) as server:
        job = WideJob(SUBTASKS)
        server.show(job)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found)
            with closing(browser):
                address = f"{server.url}/#/jobs/{job.job_id}/graph"
                paints = [_first_paint(browser, address) for _ in range(PAINTS + 1)][1:]
                return {
                    "first_paint_ms": round(median(paints)),
                    "first_paint_ms_all": [round(paint) for paint in paints],
                    **_wide_updates(browser, f"{address}/{WIDE}/subtasks"),
                    "browser": f"Chromium {browser.version}, without a window",
                }


def _first_paint(browser: "Browser", address: str) -> float:
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(address)
        return float(page.evaluate(FIRST_PAINT))


def _wide_updates(browser: "Browser", address: str) -> dict[str, Any]:
    """From the first drawing of all subtasks on."""
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(address)
        page.wait_for_function(f"(it) => ({MARKS})(it).length > 0", arg=[DRAWN, SUBTASKS])
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        before_s = _busy_s(session)
        time.sleep(WATCH_S)
        busy_s = _busy_s(session) - before_s
        moments = page.evaluate(MARKS, [DRAWN, SUBTASKS])
    shown = len(moments) - 1
    assert shown > 0, "the page has never shown new figures"
    return {
        "wide_updates_hz": round(shown / (moments[-1] - moments[0]) * 1000, 2),
        "wide_update_ms": round(busy_s * 1000 / shown, 1),
        "wide_subtasks": SUBTASKS,
    }


def _busy_s(session: "CDPSession") -> float:
    """What the page's main thread has worked so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(it["value"] for it in metrics if it["name"] == "TaskDuration"))
