"""Programs from end to end on a local Spark: what comes out is what was meant."""

import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headgate.datastream import (
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
    SlotSharingGroup,
)
from headgate.datastream.connectors import (
    DataGeneratorSource,
    NumberSequenceSource,
    SocketTextSource,
    TextFileSink,
    TextFileSource,
)
from tests.spark.programs import (
    ODD,
    Both,
    CountTo,
    Lines,
    Numbered,
    Sorted,
    WithProcess,
    WithSubtask,
    collected,
    environment,
)

pytestmark = pytest.mark.usefixtures("spark")

TEXT = ["to be or not to be", "that is the question"]
COUNTS = {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}


@pytest.mark.spark_smoke
def test_words_are_counted() -> None:
    words = environment().from_collection(TEXT).flat_map(str.split).map(lambda word: (word, 1))
    found = collected(words.key_by(lambda pair: pair[0]).sum(1))
    assert len(found) == 10  # a running count for every word that comes
    assert dict(found) == COUNTS


def test_a_batch_job_sends_one_result_for_each_key() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    words = env.from_collection(TEXT).flat_map(str.split).map(lambda word: (word, 1))
    found = collected(words.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert found == sorted(COUNTS.items())


def test_in_batch_consumers_start_when_producers_have_finished() -> None:
    def later(mode: RuntimeExecutionMode) -> bool:
        env = environment().set_runtime_mode(mode)
        made = env.from_source(NumberSequenceSource(1, 6)).map(produced_at)
        times = collected(made.rebalance().map(lambda at: (at, time.time())))
        return max(made for made, _ in times) <= min(read for _, read in times)

    assert later(RuntimeExecutionMode.BATCH)
    assert not later(RuntimeExecutionMode.STREAMING)


def produced_at(number: int) -> float:
    time.sleep(0.05 * number)
    return time.time()


def test_the_first_record_is_there_while_an_endless_source_runs() -> None:
    endless = environment(1).add_source(CountTo(None, pause_s=0.01))
    with endless.map(lambda n: n + 1).execute_and_collect("endless") as results:
        assert [next(results), results.next()] == [1, 2]
    assert environment().add_source(CountTo(None)).execute_and_collect(limit=3) == [0, 1, 2]


def test_a_limit_above_what_there_is_gives_all() -> None:
    assert environment().from_collection([1, 2]).execute_and_collect("few", 5) == [1, 2]


def test_side_outputs_and_the_main_output_are_apart() -> None:
    env = environment()
    main = env.from_source(NumberSequenceSource(1, 10)).process(Sorted())
    labelled = main.map(lambda n: ("even", n)).union(
        main.get_side_output(ODD).map(lambda n: ("odd", n))
    )
    assert collected(labelled) == [
        *(("even", n) for n in range(2, 11, 2)),
        *(("odd", n) for n in range(1, 10, 2)),
    ]


def test_a_side_output_that_nobody_takes_is_dropped() -> None:
    main = environment().from_collection(range(4)).process(Sorted())
    assert collected(main) == [0, 2]


def test_side_outputs_may_be_made_in_two_streams_process() -> None:
    late = OutputTag("late")

    class Late(ProcessFunction[int, int]):
        def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
            return [value, (late, -value)]

    main = environment().from_collection([1, 2]).process(Late())
    assert collected(main.get_side_output(late).rebalance()) == [-2, -1]


def test_union_keeps_all_records() -> None:
    env = environment()
    first, second = env.from_collection([1, 2]), env.from_source(NumberSequenceSource(3, 6))
    assert collected(first.union(second, first).map(lambda n: n * 10)) == [
        10,
        10,
        20,
        20,
        30,
        40,
        50,
        60,
    ]


def test_two_streams_are_connected() -> None:
    env = environment()
    letters, numbers = env.from_collection(["a", "b"]), env.from_collection([1, 2])
    assert collected(letters.connect(numbers).map(Both()).map(str)) == [
        "('one', 'a')",
        "('one', 'b')",
        "('two', 1)",
        "('two', 2)",
    ]


def test_connected_streams_with_equal_keys_meet() -> None:
    env = environment()
    left, right = env.from_collection(range(8)), env.from_collection(range(8))
    both = left.connect(right).key_by(lambda n: n, lambda n: n).map(Both())
    tasks: dict[int, set[int]] = {}
    for subtask, (_, number) in collected(both.map(WithSubtask())):
        tasks.setdefault(number, set()).add(subtask)
    assert [len(tasks[number]) for number in range(8)] == [1] * 8


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("rebalance", {0: 20, 1: 20}),
        ("rescale", {0: 20, 1: 20}),
        ("broadcast", {0: 40, 1: 40}),
        ("global_", {0: 40}),
    ],
)
def test_partitioning(way: str, expected: dict[int, int]) -> None:
    numbers = environment().from_collection(range(40))
    found = collected(getattr(numbers, way)().map(WithSubtask()))
    assert Counter(subtask for subtask, _ in found) == expected


def test_shuffle_reaches_all_tasks_and_loses_nothing() -> None:
    found = collected(environment().from_collection(range(200)).shuffle().map(WithSubtask()))
    assert sorted(n for _, n in found) == list(range(200))
    assert {subtask for subtask, _ in found} == {0, 1}


def test_forward_stays_in_the_same_task() -> None:
    first = environment().from_source(NumberSequenceSource(0, 9)).map(WithSubtask())
    second = first.forward().map(WithSubtask()).start_new_chain()
    assert all(before == after for after, (before, _) in collected(second))


def test_the_partitioner_decides() -> None:
    numbers = environment().from_collection(range(10))
    custom = numbers.partition_custom(lambda key, tasks: key % tasks, lambda n: n // 5)
    assert collected(custom.map(WithSubtask())) == [(n // 5, n) for n in range(10)]


def test_split_and_select() -> None:
    env = environment()
    halves = env.from_collection(range(6)).split(lambda n: ["even" if n % 2 == 0 else "odd", "all"])
    union = (
        halves.select("even")
        .map(lambda n: ("e", n))
        .union(
            halves.select("odd").map(lambda n: ("o", n)),
            halves.select("all").map(lambda n: ("a", n)),
        )
    )
    assert collected(union) == sorted(
        [("a", n) for n in range(6)] + [("e", n) for n in (0, 2, 4)] + [("o", n) for n in (1, 3, 5)]
    )


def test_records_of_a_key_stay_in_order_over_several_tasks() -> None:
    env = environment(4)
    numbers = env.from_collection(range(2000)).key_by(lambda n: n % 7).process(Numbered())
    found = collected(numbers)
    assert all(in_order for _, _, in_order in found)
    assert Counter(key for key, _, _ in found) == Counter(n % 7 for n in range(2000))
    assert all(max(c for k, c, _ in found if k == key) in (285, 286) for key in range(7))


def test_rolling_aggregations() -> None:
    rows = [("a", 3, "x"), ("a", 1, "y"), ("b", 5, "z"), ("a", 2, "w")]

    def last(kind: str) -> dict[str, Any]:
        stream: Any = environment().from_collection(rows).key_by(lambda row: row[0])
        with getattr(stream, kind)(1).execute_and_collect() as results:
            return {row[0]: row for row in results}

    assert last("sum")["a"] == ("a", 6, "x")
    assert last("min")["a"] == ("a", 1, "x")
    assert last("max_by")["a"] == ("a", 3, "x")
    assert last("min_by") == {"a": ("a", 1, "y"), "b": ("b", 5, "z")}


def test_slot_sharing_groups_need_slots_of_their_own() -> None:
    env = environment()
    group = SlotSharingGroup("models")
    numbers = env.from_source(NumberSequenceSource(0, 99)).map(WithProcess())
    apart = numbers.rebalance().map(WithProcess()).slot_sharing_group(group)
    pairs = collected(apart)
    first = {before for _, (before, _) in pairs}
    second = {after for after, _ in pairs}
    assert (len(first), len(second)) == (2, 2)
    assert not first & second


def test_chaining_can_be_switched_off() -> None:
    env = environment(1)
    numbers = env.from_collection(range(3)).map(lambda n: n + 1).map(lambda n: n * 2)
    numbers.disable_chaining().name("doubles").uid("doubles-1")
    assert [vertex.name for vertex in env.get_job_graph().vertices] == [
        "Source: Collection Source -> Map",
        "doubles",
    ]
    assert collected(numbers) == [2, 4, 6]
    env = environment().disable_operator_chaining()
    assert collected(env.from_collection([1, 2]).map(lambda n: -n)) == [-2, -1]


def test_a_generator_keeps_its_rate() -> None:
    source = DataGeneratorSource(lambda index: index * index, count=40, records_per_second=100)
    started = time.monotonic()
    assert collected(environment().from_source(source)) == [n * n for n in range(40)]
    assert time.monotonic() - started > 0.25  # 40 records at 100 in a second, less a first burst


def test_lines_of_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server, b"one\ntwo\nthree"))
        thread.start()
        source = SocketTextSource("127.0.0.1", server.getsockname()[1])
        lines = environment().from_source(source).map(str.upper)
        assert collected(lines) == ["ONE", "THREE", "TWO"]
        thread.join()


def serve(server: socket.socket, data: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(data)


def test_files_by_line_and_files_again(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{n}\n" for n in range(100)))
    out = tmp_path / "out"
    env = environment()
    lines = env.from_source(TextFileSource(str(tmp_path)), None, "logs")
    lines.rebalance().map(str.upper).sink_to(TextFileSink(out))
    env.execute("copy")
    parts = sorted(out.glob("part*.txt"))
    assert len(parts) == 2
    written = sorted(line for part in parts for line in part.read_text().splitlines())
    assert written == sorted(f"{name}{n}" for name in "ABC" for n in range(100))
    assert [path.name for path in out.iterdir() if path not in parts] == []


def test_a_sink_of_one_s_own(tmp_path: Path) -> None:
    env = environment()
    env.from_source(NumberSequenceSource(1, 10)).add_sink(Lines(str(tmp_path)))
    env.execute()
    written = [path.read_text().split() for path in sorted(tmp_path.iterdir())]
    assert written == [["1", "2", "3", "4", "5"], ["6", "7", "8", "9", "10"]]


def test_printed_lines_come_out_of_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    env = environment()
    numbers = env.from_source(NumberSequenceSource(1, 4))
    numbers.print()
    numbers.map(lambda n: -n).print("minus").set_parallelism(1)
    env.execute()
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == ["1> 1", "1> 2", "2> 3", "2> 4", *(f"minus> -{n}" for n in range(1, 5))]


def test_a_program_runs_once_for_each_execute() -> None:
    env = environment()
    env.from_collection([1]).print()
    result = env.execute("first")
    assert result.get_net_runtime() > 0
    assert env.from_collection([2]).execute_and_collect(limit=9) == [2]


def test_records_of_the_test_s_own_classes_travel() -> None:
    found = collected(
        environment().from_collection(range(3)).map(Point).rebalance().map(lambda point: point.x)
    )
    assert found == [0, 1, 2]


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def test_large_records_cross_processes() -> None:
    numbers = environment().from_collection(range(20)).map(lambda n: (n, bytes(500_000)))
    found = collected(numbers.rebalance().map(lambda pair: (pair[0], len(pair[1]))))
    assert found == [(n, 500_000) for n in range(20)]
