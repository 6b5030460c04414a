"""Write the tables of docs/metrics.md anew: python docs/generate_metrics.py"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from headgate.base.figures import MAX, MIN, MetricFamily, metrics_of
from headgate.observe.prometheus import SOURCES, TASK_LABELS, SpecialMetric

PAGE = Path(__file__).with_name("metrics.md")
START, END = "<!-- metrics -->\n", "<!-- /metrics -->"
UNITS = ("seconds", "bytes", "ratio", "records", "buffers", "calls", "cores")


def tables() -> str:
    """All metrics, by what they are about."""
    parts = []
    for title, group in groupby(SOURCES, attrgetter("title")):
        sources = list(group)
        labels = sources[0].labels
        metrics: list[MetricFamily | SpecialMetric] = []
        for source in sources:
            found = source.metrics
            metrics += (found,) if isinstance(found, SpecialMetric) else metrics_of(found)
        shown = ", ".join(f"`{label}`" for label in labels)
        parts.append(f"\n### {title}\n\nLabels: {shown}.\n\n{table(labels, metrics)}\n")
    return "".join(parts)


def table(labels: tuple[str, ...], metrics: Iterable[MetricFamily | SpecialMetric]) -> str:
    rows = ["| name | type, unit | meaning | in Flink |", "|---|---|---|---|"]
    for metric in metrics:
        meaning = metric.meaning
        if isinstance(metric, SpecialMetric):
            if metric.labels != labels:
                own = [f"`{label}`" for label in metric.labels if label not in labels]
                more = "" if set(labels) <= set(metric.labels) else ", and no others"
                meaning += f" Label{'s' if len(own) > 1 else ''} {', '.join(own)}{more}."
        elif metric.is_age or metric.merge is MAX:
            meaning += " Of subtasks, the largest." if labels is TASK_LABELS else ""
        elif metric.merge is MIN:
            meaning += " Of subtasks, the smallest."
        flink = f"`{metric.flink}`" if metric.flink else ""
        flink = flink.replace(", ", "`, `").replace(" + ", "` + `")
        rows.append(f"| `{metric.name}` | {unit(metric)} | {meaning} | {flink} |")
    return "\n".join(rows)


def unit(metric: MetricFamily | SpecialMetric) -> str:
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
