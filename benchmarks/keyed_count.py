"""``bench keyed-count``: generated words → map → key_by → running count, on embedded Spark.

The words (10,000 distinct, Zipf) are picked beforehand. They are counted by a reduce, and by a
process function with a ValueState as most programs have it, and by the reduce with object reuse:
what emission by value costs is the difference in CPU. The final counts are compared with those of
the words. The yardstick is a plain loop over the same words with the same functions: one core, no
exchange.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from benchmarks.measured_job import (
    PICKED,
    ReportingSink,
    bench_environment,
    first_place,
    note_first_record,
    rate_figures,
    split_evenly,
)
from headgate.api.datastream import DataStream
from headgate.api.job import JobClient
from headgate.api.keyed import KeyedStream
from headgate.functions.context import ConnectorContext, RuntimeContext
from headgate.functions.function import KeyedProcessFunction
from headgate.functions.source import Source, SplitReader
from headgate.functions.state import ValueStateDescriptor

VOCABULARY: Final = 10_000
SEED: Final = 11
OBJECT_REUSE: Final = {"pipeline.object-reuse": "true"}


def run_keyed_count_bench(records: int, parallelism: int, rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds; the first job of the session only warms it up."""
    keyed_count_round(min(records, 200_000), parallelism)
    reduced, processed, reused = [], [], []
    for _ in range(rounds):  # in turns: the machine may be busy for a while
        reduced.append(keyed_count_round(records, parallelism))
        processed.append(keyed_count_round(records, parallelism, count=by_state))
        reused.append(keyed_count_round(records, parallelism, OBJECT_REUSE))
    by_value = min(result.cpu_ns_per_record for result in reduced)
    rates = [result.records_per_s for result in reduced]
    plain = median(_plain_loop(min(records, 1_000_000)) for _ in range(rounds))
    return {
        **rate_figures(rates, plain),
        "process_records_per_s": round(median(result.records_per_s for result in processed)),
        "cpu_ns_per_record": round(by_value),
        "by_value_ns_per_record": round(
            by_value - min(result.cpu_ns_per_record for result in reused)
        ),
        "process_cpu_ns_per_record": round(min(result.cpu_ns_per_record for result in processed)),
        "records": records,
        "parallelism": parallelism,
        "distinct_words": VOCABULARY,
        "rounds": rounds,
        "records_per_s_all": [round(rate) for rate in rates],
    }


@dataclass(frozen=True, slots=True)
class CountResult:
    """How a job went whose counts are right."""

    records_per_s: float
    cpu_ns_per_record: float
    """Of all threads of the workers, from the first record to the last."""
    checkpoints: int
    """So many were complete."""


def by_reduce(pairs: KeyedStream) -> DataStream:
    """The running count of each word."""
    return pairs.reduce(add_counts)


def by_state(pairs: KeyedStream) -> DataStream:
    """The same by a process function."""
    return pairs.process(Counting())


def keyed_count_round(
    records: int,
    parallelism: int,
    settings: Mapping[str, str] = MappingProxyType({}),
    beside: Callable[[JobClient], AbstractContextManager[object]] = nullcontext,
    count: Callable[[KeyedStream], DataStream] = by_reduce,
) -> CountResult:
    """One job with these settings; ``beside`` gives a block that lasts as long as it."""
    env = bench_environment(parallelism, settings)
    sink = ReportingSink(CountMeter)
    words = env.from_source(WordSource(records), None, "words")
    count(words.map(as_pair).key_by(word_of)).sink_to(sink)
    client = env.execute_async("bench keyed-count")
    with beside(client):
        client.get_job_execution_result().result()
    found: Counter[str] = Counter()
    for report in sink.results():
        found.update(report["counts"])
    assert found == expected_counts(records, parallelism), "words were lost or counted twice"
    cpu_s = sum(report["cpu_s"] for report in sink.results())
    completed = int(str(client.get_metrics().get("job.checkpoints.completed", 0)))
    return CountResult(records / sink.elapsed_s(), cpu_s * 1e9 / records, completed)


# The user's functions, the same in the job and in the plain loop.


def as_pair(word: str) -> tuple[str, int]:
    return word, 1


def word_of(pair: tuple[str, int]) -> str:
    return pair[0]


def add_counts(before: tuple[str, int], pair: tuple[str, int]) -> tuple[str, int]:
    return before[0], before[1] + pair[1]


class Counting(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Adds up in a ValueState."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        count = (self._count.value() or 0) + value[1]
        self._count.update(count)
        yield value[0], count


def _plain_loop(records: int) -> float:
    """Records a second of a loop that calls the functions and nothing else."""
    words = picked_words()
    counts: dict[str, tuple[str, int]] = {}
    began_ns = time.monotonic_ns()
    left = records
    while left > 0:
        for word in words[:left]:
            pair = as_pair(word)
            key = word_of(pair)
            before = counts.get(key)
            counts[key] = pair if before is None else add_counts(before, pair)
        left -= len(words)
    return records / (time.monotonic_ns() - began_ns) * 1e9


@dataclass(frozen=True)
class WordSource(Source):
    """So many words, shared evenly by its tasks; each begins at another place of the list."""

    records: int

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        return list(enumerate(split_evenly(self.records, parallelism)))

    def open(self, split: Any, position: Any, context: ConnectorContext) -> "WordReader":
        return WordReader(*split) if position is None else WordReader(*position)


class WordReader(SplitReader):
    """Slices of the same list of words, over and over."""

    def __init__(self, task: int, records: int, at: int | None = None) -> None:
        self._words = picked_words()
        self._task = task
        self._at = first_place(task) if at is None else at
        self._left = records

    def poll(self, limit: int) -> list[str] | None:
        note_first_record()
        if not self._left:
            return None
        words = self._words[self._at : self._at + min(limit, self._left)]
        self._at = (self._at + len(words)) % PICKED
        self._left -= len(words)
        return words

    def position(self) -> tuple[int, int, int]:
        return self._task, self._left, self._at


class CountMeter:
    """Keeps the last count of each word."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.take = self._counts.update
        """Given a list of (word, count)."""

    def report(self) -> dict[str, Any]:
        return {"counts": self._counts}


def picked_words() -> list[str]:
    """Words by Zipf's law, the same in every process."""
    words = [f"word-{number}" for number in range(VOCABULARY)]
    weights = list(accumulate(1 / (rank + 1) for rank in range(VOCABULARY)))
    return random.Random(SEED).choices(words, cum_weights=weights, k=PICKED)


def expected_counts(records: int, parallelism: int) -> Counter[str]:
    """What a plain loop over the same words counts."""
    words = picked_words()
    whole = Counter(words)
    counts: Counter[str] = Counter()
    for task, share in WordSource(records).splits(parallelism):
        rounds, rest = divmod(share, PICKED)
        for word, count in whole.items() if rounds else ():
            counts[word] += count * rounds
        at = first_place(task)
        counts.update((words + words)[at : at + rest])
    return counts
