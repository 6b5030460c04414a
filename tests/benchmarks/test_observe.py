"""The parts of ``bench observe`` that need no Spark."""

from collections.abc import Iterator

import pytest

from benchmarks.observe import ObservedRound, report_figures, shares_of
from benchmarks.onlookers import Onlookers, Sightings
from benchmarks.wide_job import WIDE, WideJob
from headgate.api.job import JobClient
from headgate.base.settings import RestSettings
from headgate.observe.web.server import PageServer, close_page_server, page_server
from tests.observe.web.kit import ScriptedJob, five_vertices, until

pytest.importorskip("starlette")


@pytest.fixture
def page() -> Iterator[PageServer]:
    found = page_server(RestSettings(port=0))
    assert found is not None
    yield found
    close_page_server()


def test_onlookers_follow_scrape_and_draw_flame_graphs_until_the_end(page: PageServer) -> None:
    job = ScriptedJob(five_vertices())
    page.show(job)
    onlookers = Onlookers(flames=True)
    seen = onlookers.seen
    with onlookers.look(JobClient(job)):  # type: ignore[arg-type]
        until(lambda: seen.updates > 1 and seen.scrapes > 1 and seen.flame_graphs > 0)
    assert seen.scrape_bytes > 10_000 and seen.failures == 0


def test_shares_compare_rounds_side_by_side() -> None:
    seen = Sightings(updates=1, scrapes=1, flame_graphs=1)
    found = {
        "off": [ObservedRound(100, 10, 1, seen), ObservedRound(50, 20, 2, seen)],
        "on": [ObservedRound(99, 10, 1.5, seen), ObservedRound(49, 21, 3, seen)],
        "flames": [ObservedRound(99, 10, 1.5, seen), ObservedRound(49, 21, 3, seen)],
    }
    result = shares_of(found)
    assert result["throughput_share"] == 0.985
    assert result["throughput_share_all"] == [0.99, 0.98]
    assert result["cpu_share_all"] == [round(11.5 / 11, 3), round(24 / 22, 3)]
    assert result["flame_share"] == 1
    found["on"][0] = ObservedRound(99, 10, 1.5, Sightings())
    with pytest.raises(AssertionError, match="nobody looked"):
        shares_of(found)


def test_a_report_of_many_channels_is_small() -> None:
    result = report_figures()
    assert result["channels"] == 10_000
    assert 0 < result["report_bytes"] < 2_000
    assert result["report_ms"] > 0


def test_the_wide_job_never_stands_still() -> None:
    job = WideJob(1_000)
    first, second = job.figures(), job.figures()
    assert [task.task for task in first] == [task.task for task in second]
    assert sum(task.vertex == WIDE for task in first) == 1_000
    assert all(now.busy_ms > then.busy_ms for then, now in zip(first, second, strict=True))
