"""Jobs in notebooks: HTML in which everything is escaped, in an output that is replaced."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from headgate.base.messages import TaskFigures, TaskState
from headgate.base.settings import ProgressShown
from headgate.observe.analysis.explain import diagnose
from headgate.observe.display import Display
from headgate.observe.job_view import JobView
from headgate.observe.notebook import kernel_shell, shows_progress
from headgate.observe.pictures import draw_html
from tests.observe.kit import (
    END,
    MIDDLE,
    SOURCE,
    ScriptedJob,
    details,
    figures,
    three_vertices,
    window_of,
)

BUSY_END = [
    figures(SOURCE, made=5_000, out=5_000, busy=50, held_up=900, idle=50),
    figures(MIDDLE, records=5_000, out=4_000, busy=20, held_up=960, idle=20),
    figures(END, records=3_000, busy=1000),
]


@dataclass
class Shell:
    """A double of IPython's: keeps what was published; the real one runs in a test on Spark."""

    published: list[tuple[str, str, bool]] = field(default_factory=list)
    callbacks: dict[str, Callable[..., None]] = field(default_factory=dict)
    trouble: Exception | None = None

    @property
    def display_pub(self) -> "Shell":
        return self

    @property
    def events(self) -> "Shell":
        return self

    def register(self, event: str, callback: Callable[..., None]) -> None:
        self.callbacks[event] = callback

    def publish(
        self, data: dict[str, str], *, transient: dict[str, str], update: bool = False
    ) -> None:
        if self.trouble is not None:
            raise self.trouble
        assert data["text/plain"]
        self.published.append((transient["display_id"], data["text/html"], update))


def a_job() -> ScriptedJob:
    """Ends when it is told to."""
    return ScriptedJob(three_vertices(), BUSY_END)


def view(
    tasks: list[TaskFigures], name: str = "orders", page: str = "", has_ended: bool = False
) -> JobView:
    window = window_of(three_vertices(), tasks)
    diagnosis = diagnose(window, complete=False)
    return JobView(name, "running", 12.4, details(window), diagnosis, has_ended, page)


def test_a_job_is_a_table_with_bars_and_a_link_to_its_page() -> None:
    html = draw_html(view(BUSY_END, page="http://127.0.0.1:8081/#/jobs/ab"))
    tree = ElementTree.fromstring(html)
    text = " ".join(tree.itertext())
    assert "orders" in text and "running · 12 s" in text
    assert "busy 100%, back-pressured 0%, idle 0%" in text, "a colour says nothing alone"
    assert "bottleneck: 'slow -> Sink: end' limits the job" in text
    (link,) = tree.iter("a")
    assert link.attrib["href"] == "http://127.0.0.1:8081/#/jobs/ab"
    bars = list(tree.iter("svg"))
    assert len(bars) == 3
    widths = [float(part.attrib["width"]) for part in bars[1]]
    assert sum(widths) == pytest.approx(120, abs=0.2)
    assert widths[1] > 100, "back-pressured nearly all the time"


def test_everything_that_has_a_name_is_escaped() -> None:
    evil = '<script>alert("1")</script>&\'"'
    html = draw_html(view(BUSY_END, name=evil, page=f'javascript:"{evil}', has_ended=True))
    assert "<script" not in html
    ElementTree.fromstring(html)
    assert not re.search(r"\b(?:src|url)\b", html), "nothing is loaded"


def test_vertices_that_have_not_begun_or_have_ended_have_a_word() -> None:
    ended = [figures(SOURCE, task, state=TaskState.FINISHED) for task in range(2)]
    text = " ".join(ElementTree.fromstring(draw_html(view(ended))).itertext())
    assert "ended" in text and "starting" in text


def test_a_cell_shows_a_job_from_its_start_to_its_end() -> None:
    shell, job = Shell(), a_job()
    display = Display(shell=shell)
    display.watch(job, "http://127.0.0.1:8081/")
    assert [update for _, _, update in shell.published[:1]] == [False], "in the cell that runs"
    job.ended.set()
    shell.callbacks["post_run_cell"](None)
    ids, pictures, updates = zip(*shell.published, strict=True)
    assert len(set(ids)) == 1 and all(updates[1:])
    assert "finished after 12.4 s" in pictures[-1], "before the next cell begins"
    assert 'href="http://127.0.0.1:8081/"' in pictures[-1]
    display.close()
    assert shell.published[-1][1] == pictures[-1]


def test_a_cell_that_started_a_job_does_not_wait_for_it() -> None:
    shell, jobs = Shell(), [a_job(), a_job()]
    display = Display(shell=shell)
    for job in jobs:
        display.watch(job)
    shell.callbacks["post_run_cell"](None)
    assert not any("finished" in html for _, html, _ in shell.published)
    assert "running" in display.html(jobs[0])
    for job in jobs:
        job.ended.set()
    display.close()
    ended = {name for name, html, _ in shell.published if "finished after" in html}
    assert len(ended) == 2, "each has an output of its own"
    assert "finished after 12.4 s" in display.html(jobs[0], "http://page/")
    assert "http://page/" in display.html(jobs[0], "http://page/")


def test_a_notebook_that_cannot_show_a_job_does_not_disturb_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shell, job = Shell(trouble=RuntimeError("no front end")), a_job()
    display = Display(shell=shell)
    display.watch(job)
    job.ended.set()
    display.close()
    assert "the notebook cannot show the job" in caplog.text


def test_a_notebook_is_one_only_if_its_kernel_runs_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert kernel_shell() is None
    assert "IPython" not in sys.modules, "it was not loaded for that"
    for shell, found in (
        (None, False),
        (SimpleNamespace(), False),  # IPython in a terminal
        (SimpleNamespace(kernel=object()), True),
    ):
        module = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert (kernel_shell() is not None) is found
        assert shows_progress(ProgressShown.AUTO) is found
        assert shows_progress(ProgressShown.ON)
        assert not shows_progress(ProgressShown.OFF)
