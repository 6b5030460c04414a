"""``/metrics`` over real HTTP, in the format that is asked for."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.observe.web.kit import ScriptedJob, five_vertices, serving

RECORDS = "headgate_task_records_in_total"


def test_all_jobs_are_in_one_text_of_the_format_asked_for() -> None:
    jobs = [ScriptedJob(five_vertices(), job_id=name) for name in ("a", "b")]
    with serving(*jobs) as ask:
        plain = ask("/metrics")
        assert plain.status == 200
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name: family for family in parse_text(plain.body.decode())}
        samples = families["headgate_task_records_in"].samples
        assert len(samples) == 2 * 5
        assert {sample.labels["job_id"] for sample in samples} == {"a", "b"}
        assert all("subtask" not in sample.labels for sample in samples)
        open_metrics = ask("/metrics", Accept="application/openmetrics-text;version=1.0.0")
        assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
        assert len([*parse_openmetrics(open_metrics.body.decode())]) == len(families)


def test_subtasks_are_shown_by_the_setting_or_on_request() -> None:
    for settings, path in (({}, "/metrics?subtasks=true"), ({"subtask_metrics": True}, "/metrics")):
        with serving(ScriptedJob(five_vertices()), **settings) as ask:
            text = ask(path).body.decode()
            assert text.count(f"\n{RECORDS}{{") == 9
            assert 'subtask="1"' in text
            assert ask("/metrics?subtasks=perhaps").status == 400


def test_metrics_need_the_token() -> None:
    with serving(ScriptedJob(five_vertices()), token="secret") as ask:
        assert ask("/metrics").status == 401
        assert ask("/metrics", Authorization="Bearer secret").status == 200
