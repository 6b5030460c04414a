"""What Prometheus is given: names, labels, sums over subtasks, and counters that never fall."""

import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from headgate.api.job import JobStatus
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.figures import (
    LATENCY_BOUNDS_MS,
    AsyncFigures,
    BatchFigures,
    GateFigures,
    LatencyFigures,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
    metrics_of,
)
from headgate.base.job_records import CheckpointPart, CheckpointRecord, CheckpointsRecord
from headgate.base.messages import TaskFigures, TaskState, UserFigure
from headgate.host.driver.checkpoint_keeper import JobFigures
from headgate.observe.prometheus import JobRecord
from tests.observe.kit import END, MIDDLE, SOURCE, figures, three_vertices
from tests.observe.still_job import STARTED_AT_MS, StillJob

prometheus_client = pytest.importorskip("prometheus_client")

from prometheus_client.openmetrics.parser import (  # noqa: E402
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text  # noqa: E402

from headgate.observe.prometheus import (  # noqa: E402
    ENDED_JOBS,
    ENDED_MS,
    MAX_PROCESSES,
    MAX_SUBTASKS,
    JobsCollector,
    content_type,
    exposition,
    shown_jobs,
)
from headgate.observe.user_metrics import warn_once  # noqa: E402

NOW_MS = STARTED_AT_MS + 60_000
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


class Scrape:
    """Samples by name and labels, each of them once."""

    def __init__(self, *jobs: StillJob, subtasks: bool = False, now_ms: float = NOW_MS) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for metric in JobsCollector(jobs, now_ms, subtasks=subtasks).collect():
            for sample in metric.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        """Of the only sample with these labels, and others perhaps."""
        (found,) = self.values(name, **labels)
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            value
            for (sample, all_labels), value in self.samples.items()
            if sample == name and labels.items() <= all_labels
        ]


def rich_figures(vertex: int, subtask: int, channels: int = 2) -> TaskFigures:
    """Every figure has a value."""
    return structs.replace(
        figures(vertex, subtask, busy=600, held_up=300, idle=100, records=7, made=3, out=9),
        bytes_in=70,
        bytes_out=90,
        buffers_in=2,
        buffers_out=3,
        soft_backpressured_ms=200,
        hard_backpressured_ms=100,
        cpu_ms=400,
        runnable_ms=50,
        commit_ms=20,
        queued_in=4,
        queued_out=5,
        buffer_size=32_768,
        in_flight_ms=250.0 + subtask,
        input_watermarks_ms=(NOW_MS - 4_000 - 1_000 * subtask,),
        output_watermark_ms=NOW_MS - 6_000,
        gates=(GateFigures(channels, 3, 96, 2, 5, 2, 2 * channels, 1, 8),),
        outputs=(OutputFigures(9, 90, 3, 1, 32, 10, 4),),
        operators=(OperatorFigures("map", 10, 9), OperatorFigures("map", 9, 9)),
        async_calls=(AsyncFigures("ask", 100, 40, 500.0),),
        batch_calls=(BatchFigures("ask", 30, 900, 4, 250.0, 3, 5, 1, 2, 60, 40),),
        latency=LatencyFigures((1, 2) + (0,) * 13 + (1,), 70_005.0),
        state_bytes=1_000,
        splits=1,
        unassigned_splits=2,
        lag_records=30,
        lag_bytes=300,
        lag_ms=2_000.0 + subtask,
        user=(UserFigure("map", ("words",), "seen", "counter", {"count": 5}),),
    )


def rich_job(parallelism: int = 2, channels: int = 2) -> StillJob:
    vertices = (SOURCE, MIDDLE, END)
    subtasks = range(parallelism)
    parts = tuple(
        CheckpointPart(f"{vertex}.{subtask}", vertex, subtask, 9, 5 + subtask, 1, 2, 100, 10, False)
        for vertex in vertices
        for subtask in subtasks
    )
    done = CheckpointRecord(3, "checkpoint", "completed", NOW_MS - 10_000, 12, 600, 60, parts=parts)
    records = (
        CheckpointRecord(5, "checkpoint", "in_progress", NOW_MS - 1, 1),
        CheckpointRecord(4, "savepoint", "completed", NOW_MS - 5_000, 99, 999),
        done,
    )
    return StillJob(
        [rich_figures(vertex, subtask, channels) for vertex in vertices for subtask in subtasks],
        graph=three_vertices(parallelism),
        processes=[
            TaskManagerFigures(slot, "host", 100 + slot, 2, 5_000, 1 << 20, 64, 60)
            for slot in subtasks
        ],
        restarted=2,
        record=CheckpointsRecord(5, 3, 1, 1, records=records),
    )


KINDS = (
    JobRecord,
    CheckpointsRecord,
    CheckpointRecord,
    CheckpointPart,
    TaskManagerFigures,
    TaskFigures,
    GateFigures,
    OutputFigures,
    OperatorFigures,
    AsyncFigures,
    BatchFigures,
)
NAMES = [metric.name for kind in KINDS for metric in metrics_of(kind)]
LATENCY = "headgate_record_latency_seconds"


def test_every_metric_of_a_rich_job_is_there_in_both_formats() -> None:
    job = rich_job()
    text = exposition([job]).decode()
    names = {sample.name for family in parse_text(text) for sample in family.samples}
    missing = {*NAMES} - names
    assert missing == {"headgate_job_end_timestamp_seconds", LATENCY}, "it runs; a histogram"
    assert f"{LATENCY}_bucket" in names
    openmetrics = exposition([job], accept=OPENMETRICS).decode()
    assert names <= {s.name for family in parse_openmetrics(openmetrics) for s in family.samples}


def test_format_follows_the_header() -> None:
    assert content_type().startswith("text/plain; version=0.0.4")
    assert content_type(OPENMETRICS).startswith("application/openmetrics-text; version=1.0.0")
    for odd in ("*/*", "text/plain;version=x", "\x00", "text/plain; escaping=values"):
        assert content_type(odd).startswith("text/plain")
        assert b"\nheadgate_job_restarts_total{" in exposition([StillJob()], accept=odd)
    odd = "application/openmetrics-text;version=abc;escaping=dots"
    assert exposition([StillJob()], accept=odd).endswith(b"# EOF\n")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition([rich_job()]),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_names_have_base_units_and_counters_their_suffix() -> None:
    units = ("_seconds", "_bytes", "_ratio", "_buffers", "_records", "_calls", "_cores")
    without = {
        "headgate_channel_credits",
        "headgate_channel_exclusive_buffers_used",
        "headgate_channel_floating_buffers_used",
        "headgate_checkpoint_id",
        "headgate_checkpoints_pending",
        "headgate_output_pool_buffers_used",
        "headgate_source_splits",
        "headgate_source_unassigned_splits",
        "headgate_taskmanager_network_buffers_available",
    }
    assert len({*NAMES}) == len(NAMES)
    assert all(name.startswith("headgate_") for name in NAMES)
    gauges = {name for name in NAMES if not name.endswith("_total")}
    assert {name for name in gauges if not name.endswith(units)} == without
    assert not [name for name in NAMES if "_ms" in name or "millis" in name]


def test_counts_of_subtasks_are_added_and_lags_are_those_of_the_worst() -> None:
    scrape = Scrape(rich_job())
    middle = {"task": "squares", "vertex": "1", "job": "unnamed", "job_id": "job-1"}
    assert scrape.value("headgate_task_records_in_total", **middle) == 20
    assert scrape.value("headgate_task_busy_seconds_total", **middle) == 1.2
    assert scrape.value("headgate_task_hard_backpressured_seconds_total", **middle) == 0.2
    assert scrape.value("headgate_channel_credits", gate="0", **middle) == 10
    assert scrape.value("headgate_channel_queued_bytes", gate="0", **middle) == 192
    assert scrape.value("headgate_task_input_pool_usage_ratio", **middle) == 0.25
    assert scrape.value("headgate_watermark_lag_seconds", **middle) == 5
    assert scrape.value("headgate_source_lag_seconds", **middle) == 2.001
    assert scrape.value("headgate_task_checkpoint_alignment_seconds", **middle) == 0.006
    assert scrape.value("headgate_task_checkpoint_state_bytes", **middle) == 200
    assert scrape.value("headgate_task_subtasks", state="running", **middle) == 2


def test_each_subtask_is_shown_on_request() -> None:
    scrape = Scrape(rich_job(), subtasks=True)
    lags = scrape.values("headgate_watermark_lag_seconds", vertex="1")
    assert sorted(lags) == [4, 5]
    assert scrape.value("headgate_watermark_lag_seconds", vertex="1", subtask="1") == 5
    assert scrape.value("headgate_user_words_seen", vertex="1", subtask="1") == 5


def test_last_checkpoint_is_the_newest_complete_one_that_is_no_savepoint() -> None:
    scrape = Scrape(rich_job())
    assert scrape.value("headgate_checkpoint_id") == 3
    assert scrape.value("headgate_checkpoint_duration_seconds") == 0.012
    assert scrape.value("headgate_checkpoint_size_bytes") == 600
    assert scrape.value("headgate_checkpoint_age_seconds") == 10
    assert scrape.value("headgate_checkpoints_completed_total") == 3
    assert scrape.values("headgate_checkpoint_size_bytes", job_id="other") == []


def test_status_is_one_of_all() -> None:
    scrape = Scrape(replace(rich_job(), state=JobStatus.RESTARTING))
    assert scrape.value("headgate_job_status", status="RESTARTING") == 1
    assert sum(scrape.values("headgate_job_status")) == 1
    assert len(scrape.values("headgate_job_status")) == len(JobStatus)


def test_latency_is_a_histogram_over_all_subtasks() -> None:
    scrape = Scrape(rich_job())
    name = LATENCY
    assert scrape.value(f"{name}_bucket", vertex="1", le="0.001") == 2
    assert scrape.value(f"{name}_bucket", vertex="1", le="0.002") == 6
    assert scrape.value(f"{name}_bucket", vertex="1", le="60") == 6
    assert scrape.value(f"{name}_bucket", vertex="1", le="+Inf") == 8
    assert scrape.value(f"{name}_count", vertex="1") == 8
    assert scrape.value(f"{name}_sum", vertex="1") == 140.01
    assert len(scrape.values(f"{name}_bucket", vertex="1")) == len(LATENCY_BOUNDS_MS) + 1


def test_watermarks_that_say_no_time_are_left_out() -> None:
    def with_watermark(subtask: int, watermark_ms: int) -> TaskFigures:
        return structs.replace(
            rich_figures(MIDDLE, subtask),
            input_watermarks_ms=(watermark_ms,),
            output_watermark_ms=watermark_ms,
        )

    none_yet, over = with_watermark(0, MIN_WATERMARK_MS), with_watermark(1, MAX_WATERMARK_MS)
    scrape = Scrape(StillJob([none_yet, over]))
    for name in ("task_input_watermark_timestamp", "task_output_watermark_timestamp"):
        assert scrape.values(f"headgate_{name}_seconds") == []
    assert scrape.values("headgate_watermark_lag_seconds") == []
    some = Scrape(StillJob([none_yet, with_watermark(1, 5_000)]))
    assert some.value("headgate_task_input_watermark_timestamp_seconds") == 5
    for other_input_ms, expected in ((MIN_WATERMARK_MS, []), (MAX_WATERMARK_MS, [5])):
        both = structs.replace(none_yet, input_watermarks_ms=(5_000, other_input_ms))
        scrape = Scrape(StillJob([both]))
        assert scrape.values("headgate_task_input_watermark_timestamp_seconds") == expected


def test_gauges_of_tasks_that_have_ended_are_left_out_and_their_counts_stay() -> None:
    done = structs.replace(rich_figures(MIDDLE, 0), state=TaskState.FINISHED)
    both = Scrape(StillJob([done, rich_figures(MIDDLE, 1)]))
    assert both.value("headgate_task_records_in_total") == 20
    assert both.value("headgate_task_input_queued_buffers") == 4
    alone = Scrape(StillJob([done]))
    assert alone.value("headgate_task_records_in_total") == 10
    assert alone.values("headgate_task_input_queued_buffers") == []
    assert alone.values("headgate_source_lag_records") == []


def test_labels_may_hold_anything() -> None:
    odd = 'a "quoted" \\ back\nline ü \udc80'
    graph = three_vertices()
    vertices = tuple(replace(vertex, name=odd) for vertex in graph.vertices)
    job = replace(rich_job(), graph=replace(graph, name=odd, vertices=vertices))
    shown = odd.replace("\udc80", "?")
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        text = exposition([job], accept=accept).decode()
        families = {family.name: family for family in parse(text)}
        family = (
            families.get("headgate_task_busy_seconds")
            or families["headgate_task_busy_seconds_total"]
        )
        assert len(family.samples) == 3, "vertices of one name are three"
        assert {sample.labels["task"] for sample in family.samples} == {shown}
        assert {sample.labels["job"] for sample in family.samples} == {shown}


def test_operators_of_one_name_stay_apart() -> None:
    scrape = Scrape(StillJob([rich_figures(MIDDLE, 0)]))
    assert scrape.value("headgate_operator_records_in_total", operator="map") == 10
    assert scrape.value("headgate_operator_records_in_total", operator="map #2") == 9


def test_a_thousand_subtasks_and_many_channels_have_as_many_series_as_two() -> None:
    few, many = rich_job(2), rich_job(1_000, channels=10_000)
    assert len(few.processes) < MAX_PROCESSES < len(many.processes)
    processes = len(metrics_of(TaskManagerFigures)) * len(few.processes)
    assert len(Scrape(many).samples) == len(Scrape(few).samples) - processes
    assert Scrape(many).value("headgate_task_records_in_total", vertex="1") == 10_000


def test_more_subtasks_than_can_be_shown_are_merged(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    tasks = [figures(MIDDLE, subtask, records=1) for subtask in range(MAX_SUBTASKS + 1)]
    for _ in range(2):
        scrape = Scrape(StillJob(tasks), subtasks=True)
    assert scrape.value("headgate_task_records_in_total") == MAX_SUBTASKS + 1
    assert [record.getMessage() for record in caplog.records] == [
        "Prometheus asks for figures of 2,001 subtasks and gets sums, because there are more "
        "than 2,000; scrape /metrics without subtasks=true"
    ]
    all_of_them = Scrape(StillJob(tasks[:MAX_SUBTASKS]), subtasks=True)
    assert len(all_of_them.values("headgate_task_records_in_total")) == MAX_SUBTASKS


def test_jobs_that_have_ended_are_shown_for_some_minutes() -> None:
    running = StillJob(job_id="running")
    fresh = StillJob(job_id="fresh", ended_at_ms=NOW_MS - ENDED_MS)
    old = StillJob(job_id="old", ended_at_ms=NOW_MS - ENDED_MS - 1)
    assert [job.job_id for job in shown_jobs([running, fresh, old], NOW_MS)] == ["running", "fresh"]
    many = [StillJob(job_id=f"{at}", ended_at_ms=NOW_MS - at) for at in range(ENDED_JOBS + 5)]
    shown = shown_jobs([running, *many], NOW_MS)
    assert {job.job_id for job in shown} == {"running", *map(str, range(ENDED_JOBS))}


def test_of_jobs_with_one_id_the_newest_is_shown() -> None:
    first = StillJob(ended_at_ms=NOW_MS - 1)
    second = StillJob(started_at_ms=STARTED_AT_MS + 1)
    assert shown_jobs([second, first], NOW_MS) == [second]


def test_nothing_runs() -> None:
    assert exposition([]).startswith(b"# HELP headgate_build_info")
    assert len(Scrape().samples) == 1


# Counters over restarts.


class ScrapeTwin(RuleBasedStateMachine):
    """Tasks report growing figures, attempts end, and counters are scraped in between."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = JobFigures()
        self.steps: Counter[str] = Counter()
        self.job = StillJob()
        self.seen: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    @rule(
        vertex=st.sampled_from([SOURCE, MIDDLE]), subtask=st.integers(0, 2), step=st.integers(1, 4)
    )
    def task_reports(self, vertex: int, subtask: int, step: int) -> None:
        task = f"{vertex}.{subtask}"
        self.steps[task] += step
        self.kept.measured([growing_figures(vertex, subtask, self.steps[task])])

    @rule(subtask=st.integers(0, 2))
    def task_ends(self, subtask: int) -> None:
        figures = growing_figures(MIDDLE, subtask, self.steps[f"{MIDDLE}.{subtask}"])
        self.kept.measured([structs.replace(figures, state=TaskState.FAILED)])

    @rule()
    def job_restarts(self) -> None:
        self.kept.attempt_ended()
        self.steps.clear()
        self.job.restarted += 1

    @invariant()
    def no_counter_falls_and_none_vanishes(self) -> None:
        tasks = [f"{vertex}.{subtask}" for vertex in (SOURCE, MIDDLE) for subtask in range(3)]
        self.job.tasks = self.kept.latest(self.kept.reported(tasks))
        for subtasks in (False, True):
            scrape = Scrape(self.job, subtasks=subtasks)
            for key, value in scrape.samples.items():
                if key[0].endswith(("_total", "_count", "_sum", "_bucket")):
                    assert value >= self.seen.get((*key,), 0), key
                    self.seen[key] = value
            with_subtask = [key for key in self.seen if ("subtask" in dict(key[1])) is subtasks]
            shared = [key for key in with_subtask if "vertex" in dict(key[1])]
            assert [key for key in shared if key not in scrape.samples] == []


def growing_figures(vertex: int, subtask: int, steps: int) -> TaskFigures:
    return structs.replace(
        figures(vertex, subtask, busy=steps, held_up=steps, idle=steps, records=steps, out=steps),
        bytes_in=10 * steps,
        cpu_ms=steps / 2,
        outputs=(OutputFigures(steps, steps, steps),),
        operators=(OperatorFigures("map", steps, steps),),
        async_calls=(AsyncFigures("ask", 10, 1, steps),),
        batch_calls=(BatchFigures("ask", steps, 9 * steps, 1, steps),),
        latency=LatencyFigures((steps,) * 16, steps) if steps > 2 else None,
        user=(
            UserFigure("map", (), "rate", "meter", {"count": steps, "rate": 1.0}),
            UserFigure("map", (), "sizes", "distribution", {"count": steps, "sum": steps}),
        ),
    )


TestScrapeTwin = ScrapeTwin.TestCase
TestScrapeTwin.settings = settings(max_examples=25, stateful_step_count=15)
