"""The page in a real browser, with jobs that exist only as figures.

Every test ends with the same question: was nothing written to the console, and did no request leave
the machine?
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec import structs
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import Error as PlaywrightError

from headgate.api.job import JobStatus
from headgate.base.inspections import Inspection, PeekRecords, WaitingEntry, WaitingRecords
from headgate.base.job_records import LogLine
from tests.observe.web.browser import WAIT_MS, Visitor, chromium, visiting

pytest.importorskip("starlette")

from tests.observe.web.kit import (
    BRANCH_LOADS,
    CALM,
    Load,
    ScriptedJob,
    a_failure,
    five_vertices,
    serving,
    some_checkpoints,
    some_lines,
    two_branches,
    until,
    usual_answers,
    wide_vertex,
)

if TYPE_CHECKING:
    from headgate.base.inspections import Found

expect.set_options(timeout=WAIT_MS)

GRAPH = "#/jobs/ab12"
VERTEX = "#/jobs/ab12/graph/2"
ROW = "tbody:not(.spacer) th"
VIEWS = {
    "#/jobs": ROW,
    "#/jobs/ab12/graph": ROW,
    "#/jobs/ab12/history": ".chart .grid text",
    "#/jobs/ab12/checkpoints/7": f".card {ROW}",
    "#/jobs/ab12/exceptions": ".failures li",
    "#/jobs/ab12/logs": ".log li",
    "#/jobs/ab12/taskmanagers": ROW,
    "#/jobs/ab12/config": ROW,
    "#/jobs/ab12/plan": ".drawing svg",
    f"{VERTEX}/subtasks": ROW,
    f"{VERTEX}/channels": ROW,
    f"{VERTEX}/watermarks": ROW,
    f"{VERTEX}/flamegraph": ".vertex button.primary",
    f"{VERTEX}/waiting": ".vertex button.primary",
    "#/jobs/nobody": ".notice.bad",
}
"""Of the address, and what is seen as soon as it is complete."""
Visit = Callable[..., AbstractContextManager[Visitor]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server with a job that is held up, for tests that only look: what limits a job is known
    after ten seconds."""
    with serving(a_job()) as ask:
        yield ask.server.port


@pytest.fixture
def visit(browser: Browser) -> Visit:
    """`visit(port)`: a visitor of the server there."""

    def at(port: int, *, width: int = 1440, dark: bool = False) -> AbstractContextManager[Visitor]:
        return visiting(browser, f"http://127.0.0.1:{port}", width=width, dark=dark)

    return at


def a_job(**changed: Any) -> ScriptedJob:
    """One that has run for a minute, with something in every view."""
    job = ScriptedJob(
        five_vertices(), checkpoint_records=some_checkpoints(), lines=some_lines(), **changed
    )
    job.fail_once(a_failure())
    job.age(60.0)
    return job


def colour_of(page: Page, vertex: int) -> tuple[int, int, int]:
    fill = page.locator(f"[data-vertex='{vertex}'] .head").get_attribute("fill") or ""
    red, green, blue = fill.removeprefix("rgb(").removesuffix(")").split()
    return int(red), int(green), int(blue)


def test_a_back_pressured_job_shows_its_colours_and_what_limits_it(visit: Visit, port: int) -> None:
    with visit(port) as visitor:
        page = visitor.open()  # the only job is opened at once
        expect(page.locator("[data-vertex='2']")).to_have_attribute("data-activity", "busy")
        expect(page.locator("[data-vertex='0']")).to_have_attribute(
            "data-activity", "back-pressured"
        )
        expect(page.locator("[data-vertex='4']")).to_have_attribute("data-activity", "idle")
        assert max(colour_of(page, 0)) < 60  # black
        red, green, blue = colour_of(page, 2)
        assert red > 180 and max(green, blue) < 80
        red, green, blue = colour_of(page, 4)
        assert blue > 180 and red < 80
        expect(page.locator(".why .summary").first).to_contain_text("'enrich' limits the job")
        expect(page.locator(".why-head .badge")).to_have_text("Waits")
        expect(page.locator("a.limits")).to_have_attribute("data-vertex", "2")
        widths = page.locator("path.edge").evaluate_all(
            "edges => edges.map(edge => Number(edge.getAttribute('stroke-width')))"
        )
        assert max(widths) > 10
        expect(page.locator(".edge-label .rate").first).to_contain_text("k/s")
        visitor.behaved()


def test_the_full_answer_has_evidence_the_python_line_and_advice(visit: Visit, port: int) -> None:
    with visit(port) as visitor:
        page = visitor.open(GRAPH)
        expect(page.locator(".why .summary").first).to_contain_text("'enrich'")
        page.get_by_role("button", name="Full answer").click()
        full = page.locator(".why .full")
        expect(full.get_by_text("Evidence")).to_be_visible()
        expect(page.locator(".why .summary")).to_have_count(1)
        expect(page.locator(".why .summary")).to_contain_text("enrich (shop.py:31)")
        expect(full.locator("code").first).to_have_text("enrich (shop.py:31)")
        row = full.get_by_role("row", name="enrich")
        expect(row.get_by_role("cell").nth(1)).not_to_have_text("leave it")
        full.get_by_role("button", name="Close").click()
        expect(full).to_be_hidden()
        visitor.behaved()


def test_tabs_that_wait_for_a_press_say_which(visit: Visit, port: int) -> None:
    with visit(port) as visitor:
        for tab, button in {"flamegraph": "Sample", "waiting": "Look"}.items():
            page = visitor.open(f"{VERTEX}/{tab}")
            expect(page.get_by_role("button", name=button, exact=True)).to_be_visible()
            expect(page.get_by_text(f"Press {button} to see")).to_be_visible()
        visitor.behaved()


def test_a_flag_covers_no_label_of_an_edge_in_a_narrow_window(visit: Visit) -> None:
    job = ScriptedJob(two_branches(), loads=BRANCH_LOADS)
    job.age(60.0)
    apart = """() => {
        const flag = document.querySelector("a.limits .flag").getBoundingClientRect();
        return [...document.querySelectorAll(".edge-label text")].every((text) => {
            const box = text.getBoundingClientRect();
            return box.right <= flag.left || flag.right <= box.left
                || box.bottom <= flag.top || flag.bottom <= box.top;
        });
    }"""
    with serving(job) as ask, visit(ask.server.port, width=620) as visitor:
        page = visitor.open(GRAPH)
        expect(page.locator("a.limits .flag")).to_be_visible()
        expect(page.locator(".edge-label.waiting")).not_to_have_count(0)
        assert page.evaluate(apart)
        visitor.behaved()


def test_restarts_are_marked_in_the_charts(visit: Visit) -> None:
    job = a_job()
    with serving(job) as ask, visit(ask.server.port) as visitor:
        page = visitor.open("#/jobs/ab12/history")
        expect(page.locator(".chart .grid text").first).to_be_visible()
        expect(page.locator(".chart .restarts line")).to_have_count(0)
        job.fail_once(a_failure())
        expect(page.locator(".chart .restarts line")).to_have_count(3)
        expect(page.locator(".chart .restarts title").first).to_contain_text("Restarted at")
        expect(page.get_by_text("; restarted at")).to_be_visible()
        visitor.behaved()


def test_the_head_tells_what_was_left_out_and_a_mean_is_no_maximum(visit: Visit) -> None:
    job = a_job(uneven=0.2, late=1_007)
    with serving(job) as ask, visit(ask.server.port) as visitor:
        page = visitor.open(GRAPH)
        expect(page.locator(".left-out li").first).to_contain_text("came too late, by up to 120 ms")
        words = page.locator("[data-vertex='2'] .words")
        expect(words).to_have_text("busy 89 % (max 99 %) · back-pr. 0 %")
        visitor.behaved()


def test_cancel_asks_first_and_the_end_is_told(visit: Visit) -> None:
    job = a_job()
    with serving(job) as ask, visit(ask.server.port) as visitor:
        page = visitor.open(GRAPH)
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Not now").click()
        expect(page.get_by_role("dialog")).to_be_hidden()
        assert job.reasons == []
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page.locator(".notice").first).to_contain_text("Canceled at")
        assert len(job.reasons) == 1
        for name in ("Savepoint…", "Stop…", "Cancel…"):
            expect(page.get_by_role("button", name=name)).to_be_disabled()
        expect(page.locator("#announcer")).to_have_text("orders by customer is now canceled.")
        visitor.behaved()


def test_a_savepoint_says_where_it_is_or_why_there_is_none(visit: Visit) -> None:
    job = a_job()
    with serving(job) as ask, visit(ask.server.port) as visitor:
        page = visitor.open(GRAPH)
        page.get_by_role("button", name="Savepoint…").click()
        page.get_by_label("Directory").fill("/data/saved")
        page.get_by_role("button", name="Take a savepoint").click()
        until(lambda: bool(job.savepoints))
        directory, _, future = job.savepoints[0]
        assert directory == "/data/saved"
        future.set_result("/data/saved/sp-1")
        expect(page.get_by_role("status").first).to_contain_text("/data/saved/sp-1")
        page.get_by_role("button", name="Stop…").click()
        page.get_by_role("button", name="Stop the job").click()
        until(lambda: len(job.savepoints) == 2)
        job.savepoints[1][2].set_exception(OSError("the disk is full"))
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("disk is full")
        visitor.behaved()


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (320, True)])
def test_axe_finds_nothing_to_object_to_in_any_view(
    visit: Visit, port: int, width: int, dark: bool
) -> None:
    with visit(port, width=width, dark=dark) as visitor:
        for view, seen in VIEWS.items():
            page = visitor.open(view)
            expect(page.locator(seen).first).to_be_visible()
            if seen.endswith("button.primary"):
                page.locator(seen).click()
                expect(page.locator(f"[role=treeitem], {ROW}").first).to_be_visible()
            if width == 320:
                assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            found = Axe().run(page)
            assert found.violations_count == 0, f"{view}: {found.generate_report()}"
        visitor.behaved(may_fail=True)  # there is no job called nobody


def test_a_token_is_asked_for_and_kept_out_of_the_address(visit: Visit) -> None:
    with serving(a_job(), token="open/sesame&more") as ask:
        with visit(ask.server.port) as visitor:
            page = visitor.open(GRAPH)
            expect(page.get_by_role("heading", level=1)).to_contain_text("asks for a token")
            assert not any(urlsplit(url).path.startswith("/jobs") for url in visitor.requested)
            page.get_by_label("Token").fill("wrong")
            page.get_by_role("button", name="Open").click()
            expect(page.get_by_text("That token is not the right one.")).to_be_visible()
            page.get_by_label("Token").fill("open/sesame&more")
            page.keyboard.press("Enter")
            expect(page.locator("h1")).to_have_text("orders by customer")
            visitor.behaved(may_fail=True)
        with visit(ask.server.port) as visitor:
            page = visitor.open("#token=open%2Fsesame%26more&path=/jobs/ab12/logs")
            expect(page.locator(".log li").first).to_be_visible()
            assert page.evaluate("location.hash") == "#/jobs/ab12/logs"
            page.reload()
            expect(page.locator(".log li").first).to_be_visible()
            visitor.behaved()


def test_a_driver_that_is_gone_is_reported_and_its_return_noticed(visit: Visit) -> None:
    job = a_job()
    with serving(job) as ask, visit(ask.server.port) as visitor:
        port = ask.server.port
        page = visitor.open(VERTEX)
        expect(page.locator("tbody tr.chosen")).to_be_visible()
        page.evaluate("document.querySelector('.vertex').dataset.same = 'yes'")
        ask.server.close()
        expect(page.get_by_role("alert").first).to_contain_text("has not answered since")
        expect(page.locator("#live")).to_have_text("No answer")
        expect(page.locator("body")).to_have_class("stale")
        expect(page.locator("[data-vertex='2']")).to_be_visible()  # the last picture stays
        with serving(job, port=port):
            with suppress(PlaywrightError):  # it may have noticed by itself meanwhile
                page.get_by_role("button", name="Try now").click(timeout=3000)
            expect(page.locator("#live")).to_have_text("Live")
            expect(page.locator("#banner")).to_be_hidden()
            expect(page.locator(".vertex[data-same='yes'] tbody tr.chosen")).to_be_visible()
        visitor.behaved(may_fail=True)


def test_a_restart_keeps_the_reader_in_place_and_an_end_is_explained(visit: Visit) -> None:
    job = a_job()
    with serving(job) as ask, visit(ask.server.port) as visitor:
        page = visitor.open(f"{VERTEX}/watermarks")
        expect(page.locator(ROW).first).to_be_visible()
        page.evaluate("document.querySelector('.vertex').dataset.same = 'yes'")
        job.state = JobStatus.RESTARTING
        expect(page.locator(".notice").first).to_contain_text("ZeroDivisionError: division by zero")
        job.fail_once(a_failure(2_000, 1))
        job.state = JobStatus.RUNNING
        expect(page.locator(".facts dd").nth(4)).to_have_text("2")
        expect(page.locator(".vertex[data-same='yes']")).to_be_visible()
        job.end(JobStatus.FAILED)
        notice = page.locator(".notice.bad").first
        expect(notice).to_contain_text("Failed at")
        expect(notice).to_contain_text("division by zero")
        notice.get_by_role("link").click()
        expect(page.locator(".failures li")).to_have_count(2)
        visitor.behaved()


def hostile(text: str) -> str:
    return f"{text}<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_markup_in_names_records_and_logs_stays_text(visit: Visit) -> None:
    graph = five_vertices()
    vertices = tuple(replace(vertex, name=hostile(vertex.name)) for vertex in graph.vertices)

    def answers(task: str, what: Inspection) -> "Found":
        if isinstance(what, PeekRecords):
            entry = WaitingEntry(0, "record", hostile("record"), hostile("key"))
            return WaitingRecords(0, 1, (entry,), 1, 1, complete=True)
        return usual_answers(task, what)

    line = LogLine(1, 1_000, "ERROR", "shop", hostile("line"), traceback=hostile("trace"))
    job = ScriptedJob(
        replace(graph, name=hostile("orders"), vertices=vertices),
        job_id="ab12",
        configuration={hostile("key"): hostile("value")},
        checkpoint_records=some_checkpoints(),
        lines=[line],
        answers=answers,
    )
    job.fail_once(
        structs.replace(a_failure(), message=hostile("division"), record=hostile("record"))
    )
    job.age(60.0)
    with serving(job) as ask, visit(ask.server.port) as visitor:
        for view, seen in VIEWS.items():
            page = visitor.open(view)
            expect(page.locator(seen).first).to_be_visible()
            if view.endswith("waiting"):
                page.get_by_role("button", name="Look").click()
                expect(page.get_by_text(hostile("record"))).to_be_visible()
            elif view.endswith("logs"):
                expect(page.get_by_text(hostile("line"))).to_be_visible()
            elif view.endswith("config"):
                expect(page.get_by_text(hostile("value"))).to_be_visible()
            assert page.locator("img[src='x'], main script").count() == 0, view
        visitor.behaved(may_fail=True)


def test_everything_can_be_reached_with_the_keyboard(visit: Visit, port: int) -> None:
    with visit(port) as visitor:
        page = visitor.open(GRAPH)
        expect(page.locator("[data-vertex='0']")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        assert page.evaluate("location.hash") == GRAPH
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.dataset.vertex") == "0":
                break
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator("[data-vertex='2']")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#vertex-title")).to_be_focused()
        expect(page.locator("tr.chosen")).to_be_visible()
        page.get_by_role("application", name="Subtasks").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#heat-readout")).to_contain_text("Subtask 1: busy 99 %")
        page.keyboard.press("Enter")
        expect(page.locator("tr.chosen th")).to_have_text("1")
        page.get_by_role("link", name="Over time").press("Enter")
        expect(page.locator("#chart-throughput-readout")).to_contain_text("from the sources")
        page.get_by_role("application", name="Throughput").focus()
        page.keyboard.press("Home")
        expect(page.locator("#announcer")).to_contain_text("from the sources")
        visitor.behaved()


def test_a_flame_graph_is_zoomed_with_keys_and_searched(visit: Visit, port: int) -> None:
    with visit(port) as visitor:
        page = visitor.open(f"{VERTEX}/flamegraph")
        page.get_by_role("button", name="Sample").click()
        frames = page.get_by_role("treeitem")
        expect(frames).to_have_count(6)
        expect(page.locator(".vertex .readout")).to_contain_text("2 frames of the runtime")
        frames.first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator(".vertex .readout")).to_contain_text("enrich (shop.py:31)")
        page.keyboard.press("Enter")
        expect(frames).to_have_count(4)  # its siblings are out of sight
        page.keyboard.press("Escape")
        expect(frames).to_have_count(6)
        page.get_by_label("Find").fill("recv")
        expect(page.locator(".flame .found")).to_have_count(1)
        visitor.behaved()


def test_a_thousand_subtasks_are_drawn_and_updated_every_second(visit: Visit) -> None:
    job = ScriptedJob(wide_vertex(1_000), [*CALM[:1], Load(0.9, 0.0, 50_000)])
    job.age(60.0)
    with serving(job) as ask, visit(ask.server.port) as visitor:
        page = visitor.open("#/jobs/ab12/graph/1")
        expect(page.locator("table[aria-rowcount='1001']")).to_be_visible()
        visitor.until(
            "performance.getEntriesByName('headgate:subtasks').filter(m => m.detail === 1000)"
            ".length >= 5"
        )
        assert 10 < page.locator(".table.virtual tbody:not(.spacer) tr").count() < 60
        drawn = page.locator("canvas.heat").evaluate(
            """canvas => {
                const context = canvas.getContext('2d');
                const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
                let red = 0;
                for (let i = 0; i < data.length; i += 4) red += data[i] > 150 && data[i + 2] < 120;
                return red / (data.length / 4);
            }"""
        )
        assert drawn > 0.5
        page.get_by_role("application", name="Subtasks").press("End")
        page.keyboard.press("Enter")
        expect(page.locator("tr.chosen th")).to_have_text("999")
        visitor.behaved()


def test_a_theme_is_chosen_and_kept(visit: Visit, port: int) -> None:
    with visit(port) as visitor:
        page = visitor.open(GRAPH)
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(245, 246, 248)"
        page.get_by_label("Colours").first.select_option("dark")
        assert page.evaluate(ground) == "rgb(15, 19, 23)"
        page.reload()
        assert page.evaluate(ground) == "rgb(15, 19, 23)"
        visitor.behaved()


def test_ended_jobs_stay_in_the_list_and_can_be_looked_at(visit: Visit) -> None:
    older, newer = a_job(job_id="older"), a_job()
    older.end(JobStatus.FINISHED)
    with serving(older, newer) as ask, visit(ask.server.port) as visitor:
        page = visitor.open()
        row = page.get_by_role("row", name="older")
        expect(row).to_contain_text("finished")
        row.get_by_role("link").click()
        expect(page.locator(".notice").first).to_contain_text("Finished at")
        expect(page.locator("[data-vertex='2']")).to_be_visible()
        expect(page.locator("#why-title")).to_have_text("What limited this job")
        page.get_by_role("button", name="Full answer").click()
        expect(page.locator(".why .full h3")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("row", name="ab12")).to_contain_text("running")
        visitor.behaved()
