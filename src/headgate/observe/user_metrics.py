"""Metrics of the user's functions for Prometheus: names that it accepts, each with one meaning.

``headgate_user_<groups>_<name>``; what Prometheus refuses in a name becomes ``_``. A counter may
fall (``dec``), so it is a gauge; a meter is a counter; a distribution is a summary, beside gauges
with its extremes, which a gauge merged over subtasks has as well. Law: whatever users call their
metrics, a scrape succeeds; what cannot be shown is left out, always the same, and told once.
"""

import logging
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from prometheus_client.metrics_core import Metric

from headgate.base.messages import UserFigure

log = logging.getLogger(__name__)

PREFIX: Final = "headgate_user"
MAX_METRICS: Final = 1_000
"""Limit for one job; a metric for each key would otherwise flood Prometheus."""
MAX_NAME_CHARS: Final = 200
TYPES: Final = {
    "counter": "gauge",
    "gauge": "gauge",
    "meter": "counter",
    "distribution": "summary",
}
SUFFIXES: Final = {
    "counter": ("",),
    "gauge": ("", "_min", "_max"),
    "meter": ("", "_total", "_created"),
    "distribution": ("", "_count", "_sum", "_created", "_min", "_max"),
}
"""What names a metric takes, so that no other may have them."""

Labels: TypeAlias = tuple[str, ...]
"""Values, in the order of the names."""
MetricKey: TypeAlias = tuple[Labels, tuple[str, ...], str, str]
"""Labels without the subtask, groups, name, kind."""


@dataclass(slots=True)
class UserSeries:
    """One metric of one operator, of all its subtasks or of one."""

    job: str
    operator: str
    figures: dict[Labels, list[UserFigure]] = field(default_factory=dict)
    """By labels, those of the subtask included if each is shown."""


class UserMetrics:
    """Collects the figures of all jobs, then gives each metric its name; used for one scrape."""

    def __init__(self, label_names: Labels, *, merged: bool) -> None:
        self._label_names = label_names
        self._merged = merged
        self._jobs: list[tuple[str, dict[MetricKey, UserSeries]]] = []
        self._owners: dict[str, tuple[str, str]] = {}
        """Name in Prometheus → the metric that has it, and its kind."""

    def begin_job(self, name: str) -> None:
        """Metrics added next belong to this job; when names collide, the earlier job wins."""
        self._jobs.append((name, {}))

    def add(self, labels: Labels, subtask: Labels, figure: UserFigure) -> None:
        """``labels`` end with the operator; ``subtask`` is empty if subtasks are merged."""
        job, metrics = self._jobs[-1]
        key = (labels, figure.scope, figure.name, figure.kind)
        series = metrics.setdefault(key, UserSeries(job, figure.operator))
        series.figures.setdefault((*labels, *subtask), []).append(figure)

    def collect(self) -> Iterator[Metric]:
        found: dict[str, list[Metric]] = {}
        seen: dict[tuple[str, Labels], str] = {}
        for job, metrics in self._jobs:
            for key in self._first(job, metrics):
                labels, scope, name, kind = key
                series = metrics[key]
                clean = self._claim(series, scope, name, kind)
                if clean is None:
                    continue
                full_name = ".".join((*scope, name))
                before = seen.setdefault((clean, labels), full_name)
                if before != full_name:
                    _warn(series, full_name, f"{clean} is the metric {before!r} already")
                    continue
                if clean not in found:
                    found[clean] = self._families(clean, kind)
                self._fill(found[clean], series, full_name)
        for families in found.values():
            yield from (family for family in families if family.samples)

    def _first(self, job: str, metrics: Iterable[MetricKey]) -> Iterable[MetricKey]:
        keys = sorted(metrics)
        if len(keys) > MAX_METRICS:
            warn_once(
                f"job {job!r} has more than {MAX_METRICS:,} metrics of its functions; Prometheus "
                f"gets the first of them by name: register fewer, none for each key"
            )
        return keys[:MAX_METRICS]

    def _claim(
        self, series: UserSeries, scope: tuple[str, ...], name: str, kind: str
    ) -> str | None:
        """The name in Prometheus; None: it cannot have one."""
        full_name = ".".join((*scope, name))
        clean = clean_name((*scope, name))
        if clean is None or kind not in TYPES:
            _warn(series, full_name, "nothing is left of its name: use ASCII letters")
            return None
        names = [clean + suffix for suffix in SUFFIXES[kind]]
        for taken in names:
            owner = self._owners.get(taken)
            if owner is not None and owner != (clean, kind):
                _warn(series, full_name, f"{taken} belongs to the {owner[1]} {owner[0]}")
                return None
        self._owners.update(dict.fromkeys(names, (clean, kind)))
        return clean

    def _families(self, clean: str, kind: str) -> list[Metric]:
        """The metric itself, and its extremes."""
        about = f"A {kind} of the program"
        families = [Metric(clean, f"{about}.", TYPES[kind])]
        if kind == "distribution" or (kind == "gauge" and self._merged):
            families += [
                Metric(f"{clean}_min", f"{about}: the smallest value.", "gauge"),
                Metric(f"{clean}_max", f"{about}: the largest value.", "gauge"),
            ]
        return families

    def _fill(self, families: list[Metric], series: UserSeries, full_name: str) -> None:
        main, *extremes = families
        for values, figures in series.figures.items():
            labels = dict(zip(self._label_names, values, strict=True))
            for suffix, value in _totals(main.type, figures):
                main.add_sample(main.name + suffix, labels, value)
            for family, pick, part in zip(extremes, (min, max), ("min", "max"), strict=False):
                value_part = part if main.type == "summary" else "value"
                if found := _finite(figures, value_part):
                    family.add_sample(family.name, labels, pick(found))
            if any(not math.isfinite(value) for it in figures for value in it.values.values()):
                _warn(series, full_name, "a value of it is not a finite number", "some of it ")


def clean_name(parts: Iterable[str]) -> str | None:
    """A name that Prometheus accepts; None: there is no letter or digit in it."""
    cleaned = [re.sub(r"[^a-zA-Z0-9_]", "_", part) for part in parts]
    if not re.search(r"[a-zA-Z0-9]", cleaned[-1]):
        return None
    name = "_".join((PREFIX, *cleaned))[:MAX_NAME_CHARS]
    return name.removesuffix("_total")  # which says that a counter never falls


def _totals(kind: str, figures: list[UserFigure]) -> Iterator[tuple[str, float]]:
    """Suffixes of samples, and their values."""
    if kind == "counter":
        yield "_total", sum(_finite(figures, "count"))
    elif kind == "summary":
        yield "_count", sum(_finite(figures, "count"))
        yield "_sum", sum(_finite(figures, "sum"))
    elif values := _finite(figures, "value") or _finite(figures, "count"):
        yield "", sum(values)


def _finite(figures: list[UserFigure], part: str) -> list[float]:
    values = [figure.values[part] for figure in figures if part in figure.values]
    return [value for value in values if math.isfinite(value)]


def _warn(series: UserSeries, metric: str, why: str, what: str = "it ") -> None:
    warn_once(
        f"metric {metric!r} of operator {series.operator!r} in job {series.job!r}: {what}is not "
        f"shown to Prometheus, because {why}"
    )


@lru_cache(maxsize=1_024)
def warn_once(sentence: str) -> None:
    """A scrape comes every few seconds; its complaints should not."""
    log.warning("%s", sentence)
