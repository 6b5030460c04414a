"""Runs one of Nexmark's queries: ``python examples/nexmark/nexmark.py q5 --events 100000``.

Prints the first results and how many there were, with the time that it took; the
start of Spark, some seconds, is in it.
"""

import argparse
import time
from pathlib import Path

from events import Nexmark
from headgate.common import Duration, WatermarkStrategy
from headgate.datastream import DataStream, StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource
from queries import QUERIES, by_name, time_of


def events_of(env: StreamExecutionEnvironment, nexmark: Nexmark, count: int) -> DataStream:
    """The first ``count`` events, with event times and watermarks."""
    for module in ("events", "queries"):  # the workers import them too
        env.add_python_file(str(Path(__file__).with_name(f"{module}.py")))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(nexmark.disorder_ms + 1)
    ).with_timestamp_assigner(lambda event, _: time_of(event))
    return env.from_source(DataGeneratorSource(nexmark, count), strategy, "events")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=sorted(QUERIES))
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--show", type=int, default=10, help="how many results to print")
    options = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(options.parallelism)
    events = events_of(env, Nexmark(), options.events)
    began, count = time.monotonic(), 0
    with by_name(options.query, events).execute_and_collect(f"nexmark {options.query}") as results:
        for result in results:
            count += 1
            if count <= options.show:
                print(result)
    took = time.monotonic() - began
    print(f"{options.query}: {options.events} events, {count} results, {took:.1f} s")


if __name__ == "__main__":
    main()
