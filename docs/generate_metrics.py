"""Write the tables of docs/metrics.md anew: python docs/generate_metrics.py"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headgate.observe import metric_families as families
from headgate.observe.call_families import ASYNC_FAMILIES, BATCH_FAMILIES
from headgate.observe.metric_family import (
    GATE_LABELS,
    JOB_LABELS,
    OPERATOR_LABELS,
    OUTPUT_LABELS,
    PROCESS_LABELS,
    TASK_LABELS,
    MetricFamily,
    MetricMerge,
    SpecialMetric,
)

PAGE = Path(__file__).with_name("metrics.md")
START, END = "<!-- metrics -->\n", "<!-- /metrics -->"
TABLES: tuple[tuple[str, tuple[str, ...], tuple[Any, ...]], ...] = (
    ("The job", JOB_LABELS, (families.BUILD, families.JOB_STATUS, *families.JOB_FAMILIES)),
    ("The last completed checkpoint", JOB_LABELS, families.LAST_CHECKPOINT_FAMILIES),
    ("Tasks", TASK_LABELS, (families.SUBTASKS, *families.TASK_FAMILIES, families.LATENCY)),
    ("Inputs", GATE_LABELS, families.GATE_FAMILIES),
    ("Outputs", OUTPUT_LABELS, families.OUTPUT_FAMILIES),
    ("Operators", OPERATOR_LABELS, families.OPERATOR_FAMILIES),
    ("Asynchronous calls", OPERATOR_LABELS, ASYNC_FAMILIES),
    ("Calls in batches", OPERATOR_LABELS, BATCH_FAMILIES),
    ("Tasks in the last completed checkpoint", TASK_LABELS, families.PART_FAMILIES),
    ("Task managers", PROCESS_LABELS, families.PROCESS_FAMILIES),
)
UNITS = ("seconds", "bytes", "ratio", "records", "buffers", "calls", "cores")


def tables() -> str:
    """All metrics, by what they are about."""
    parts = []
    for title, labels, metrics in TABLES:
        shown = ", ".join(f"`{label}`" for label in labels)
        parts.append(f"\n### {title}\n\nLabels: {shown}.\n\n{table(labels, metrics)}\n")
    return "".join(parts)


def table(labels: tuple[str, ...], metrics: Iterable[MetricFamily[Any] | SpecialMetric]) -> str:
    rows = ["| name | type, unit | meaning | in Flink |", "|---|---|---|---|"]
    for metric in metrics:
        meaning = metric.meaning
        if isinstance(metric, SpecialMetric):
            if metric.labels != labels:
                own = [f"`{label}`" for label in metric.labels if label not in labels]
                more = "" if set(labels) <= set(metric.labels) else ", and no others"
                meaning += f" Label{'s' if len(own) > 1 else ''} {', '.join(own)}{more}."
        elif metric.is_moment or metric.merge is MetricMerge.MAX:
            meaning += " Of subtasks, the largest." if labels is TASK_LABELS else ""
        elif metric.merge is MetricMerge.MIN:
            meaning += " Of subtasks, the smallest."
        flink = f"`{metric.flink}`" if metric.flink else ""
        flink = flink.replace(", ", "`, `").replace(" + ", "` + `")
        rows.append(f"| `{metric.name}` | {unit(metric)} | {meaning} | {flink} |")
    return "\n".join(rows)


def unit(metric: MetricFamily[Any] | SpecialMetric) -> str:
    """The last word of the name says it, with what kind of metric it is."""
    words = metric.name.removesuffix("_total").removesuffix("_used").split("_")
    found = next((word for word in reversed(words) if word in UNITS), "")
    return f"{metric.kind.value}, {found}" if found else metric.kind.value


def page(text: str) -> str:
    """The page with current tables."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
