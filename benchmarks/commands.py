"""``python -m benchmarks …``: the options of each benchmark."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.calls import MEANINGS as CALLS_MEANINGS
from benchmarks.calls import run_calls_bench
from benchmarks.checkpoint import run_checkpoint_bench
from benchmarks.exchange import run_exchange_bench
from benchmarks.isolation import run_isolation_bench, show_isolation
from benchmarks.keyed_count import run_keyed_count_bench
from benchmarks.latency import TIMEOUTS_MS, run_latency_bench
from benchmarks.peers.bench import COLUMNS as PEERS_COLUMNS
from benchmarks.peers.bench import run_peers_bench
from benchmarks.peers.compared import COMPARED
from benchmarks.peers.contenders import PEERS
from benchmarks.programs import ALL_PROGRAMS, COLUMNS, run_programs_bench
from benchmarks.records import run_records_bench
from benchmarks.recovery import run_recovery_bench
from benchmarks.scale import RECORDS as SCALE_RECORDS
from benchmarks.scale import SECTIONS as SCALE_SECTIONS
from benchmarks.scale import run_scale_bench, show_scale
from benchmarks.sources import MEANINGS as SOURCES_MEANINGS
from benchmarks.sources import SECTIONS as SOURCES_SECTIONS
from benchmarks.sources import run_sources_bench
from benchmarks.startup import run_startup_bench
from benchmarks.state import run_state_bench
from benchmarks.state_read import MEANINGS as STATE_READ_MEANINGS
from benchmarks.state_read import SECTIONS as STATE_READ_SECTIONS
from benchmarks.state_read import run_state_read_bench

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_ROUNDS = click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1), help="Figures are medians."
)


@click.group()
def bench() -> None:
    """Measure, against what the field uses, in one run."""


@bench.command()
@_JSON
@_ROUNDS
@click.option("--megabytes", default=4000, show_default=True, type=click.IntRange(1))
@click.option("--channels", default=8, show_default=True, type=click.IntRange(1, 64))
@click.option(
    "--exclusive",
    default=6,
    show_default=True,
    type=click.IntRange(0, 64),
    help="Exclusive buffers of each channel.",
)
def exchange(as_json: bool, rounds: int, megabytes: int, channels: int, exclusive: int) -> None:
    """Raw 32 KiB buffers between two processes, against a plain socket loop."""
    result = run_exchange_bench(megabytes, channels, exclusive, rounds)
    meanings = {
        "mb_per_s": "megabytes a second through partitions, credits and gates",
        "buffers_per_s": "buffers a second",
        "plain_socket_mb_per_s": "a plain send/recv loop with the same block size",
        "ratio": "the first against the third; the aim is 1.0 or more",
        "cpu_s_per_gb": "CPU seconds of both processes for a gigabyte",
    }
    show("Data exchange over loopback", result, meanings, as_json)


@bench.command()
@_JSON
@_ROUNDS
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.1, 60))
@click.option("--live", is_flag=True, help="Show it as it goes, in one round.")
def isolation(as_json: bool, rounds: int, seconds: float, live: bool) -> None:
    """Two channels on one connection, one consumer stopped: credits against TCP flow control."""
    if live:
        show_isolation(seconds)
        return
    result = run_isolation_bench(seconds, rounds)
    show("Does a stopped consumer hold up its neighbour?", result, ISOLATION_MEANINGS, as_json)


ISOLATION_MEANINGS = {
    "credit_share": "healthy channel beside a stopped one, as a share of alone; aim 0.9 or more",
    "tcp_share": "the same with TCP flow control",
    "credit_alone_mb_per_s": "healthy channel alone, with credits",
    "credit_beside_mb_per_s": "beside the stopped one, with credits",
    "tcp_alone_mb_per_s": "healthy channel alone, with TCP flow control",
    "tcp_beside_mb_per_s": "beside the stopped one, with TCP flow control",
    "credit_block_ms": "from the consumer's stop until its producer is blocked, with credits",
    "tcp_block_ms": "the same with TCP flow control",
}


@bench.command()
@_JSON
@_ROUNDS
@click.option("--records", default=4_000_000, show_default=True, type=click.IntRange(1))
@click.option("--channels", default=4, show_default=True, type=click.IntRange(1, 64))
def records(as_json: bool, rounds: int, records: int, channels: int) -> None:
    """Python (str, int) records between two processes, against plain pickling."""
    result = run_records_bench(records, channels, rounds)
    meanings = {
        "records_per_s": "records a second; the aim is 2 million or more",
        "cost_ratio": "CPU per record, both sides, against plain pickling; aim 1.3 or less",
        "sender_ns_per_record": "CPU nanoseconds a record on the sending side",
        "receiver_ns_per_record": "on the receiving side",
        "plain_pickle_ns_per_record": "pickling and unpickling the same lists, nothing else",
    }
    show("Python records between two processes", result, meanings, as_json)


@bench.command("keyed-count")
@_JSON
@_ROUNDS
@click.option("--records", default=5_000_000, show_default=True, type=click.IntRange(1))
@click.option("--parallelism", "-p", default=2, show_default=True, type=click.IntRange(1, 64))
def keyed_count(as_json: bool, rounds: int, records: int, parallelism: int) -> None:
    """Words → map → key_by → running count with plain functions, on embedded Spark."""
    result = run_keyed_count_bench(records, parallelism, rounds)
    meanings = {
        "records_per_s": "records a second, start-up excluded; the aim is 2.5 million",
        "plain_loop_records_per_s": "the same functions in a plain loop: one core, no exchange",
        "ratio": "the first against the second",
        "process_records_per_s": "the same by a KeyedProcessFunction with a ValueState",
        "cpu_ns_per_record": "CPU nanoseconds of the workers for a record, the least of the rounds",
        "process_cpu_ns_per_record": "the same of the KeyedProcessFunction",
        "by_value_ns_per_record": "what emission by value takes of the CPU, against object reuse",
    }
    show("Keyed count of words", result, meanings, as_json)


@bench.command()
@_JSON
@_ROUNDS
@click.option("--records", default=5_000_000, show_default=True, type=click.IntRange(1))
@click.option("--parallelism", "-p", default=2, show_default=True, type=click.IntRange(1, 64))
def windows(as_json: bool, rounds: int, records: int, parallelism: int) -> None:
    """Readings of 10,000 sensors → key_by → sums of 1 s in event time, on embedded Spark."""
    from benchmarks.windows import run_windows_bench  # it loads pyarrow

    result = run_windows_bench(records, parallelism, rounds)
    meanings = {
        "records_per_s": "records a second, start-up excluded; the aim is 1 million",
        "plain_loop_records_per_s": "the same functions in a plain loop: one core, no exchange",
        "ratio": "the first against the second",
        "columns_per_s": "the same readings as Arrow batches, windows on columns",
        "columns_ratio": "the fourth against the first; the aim is 5",
        "joins_per_s": "readings joined with a hundredth of others by sensor and window",
        "column_joins_per_s": "the same join on columns",
        "column_joins_ratio": "the second of these against the first",
        "results": "sums that were sent, one for each sensor and second",
    }
    show("Keyed windows of one second", result, meanings, as_json)


@bench.command()
@_JSON
@_ROUNDS
@click.option("--rows", default=50_000_000, show_default=True, type=click.IntRange(1))
@click.option("--parallelism", "-p", default=2, show_default=True, type=click.IntRange(1, 64))
def arrow(as_json: bool, rounds: int, rows: int, parallelism: int) -> None:
    """Arrow batches → key_by on a column → running counts, on embedded Spark."""
    from benchmarks.arrow import run_arrow_bench

    result = run_arrow_bench(rows, parallelism, rounds)
    meanings = {
        "rows_per_s": "rows a second by a text of 12 bytes, start-up excluded; aim 12 million",
        "int_rows_per_s": "the same by a whole number; aim 20 million",
        "mb_per_s": "megabytes of columns a second, by the text",
        "exchange_share": "of the CPU for a batch: routing, writing and reading of its partials",
    }
    show("Counts by key on columns", result, meanings, as_json)


@bench.command()
@_JSON
@_ROUNDS
@click.option("--rows", default=10_000_000, show_default=True, type=click.IntRange(1))
@click.option("--parallelism", "-p", default=2, show_default=True, type=click.IntRange(1, 64))
def dataframe(as_json: bool, rounds: int, rows: int, parallelism: int) -> None:
    """A DataFrame through map_batches and back, against Spark's own mapInArrow."""
    from benchmarks.arrow import run_dataframe_bench

    result = run_dataframe_bench(rows, parallelism, rounds)
    meanings = {
        "rows_per_s": "rows a second through from_dataframe, map_batches, to_dataframe",
        "map_in_arrow_rows_per_s": "the same DataFrame through mapInArrow",
        "counted_rows_per_s": "the same with the rows of 1,000 keys counted behind map_batches",
        "map_in_arrow_counted_rows_per_s": "mapInArrow, groupBy and count",
        "ratio": "the first against the second; the aim is 0.9 or more",
        "counted_ratio": "the third against the fourth",
    }
    show("DataFrames through columns", result, meanings, as_json)


@bench.command()
@_JSON
@click.option("--rate", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.5, 600))
@click.option("--timeout-ms", default=None, type=click.IntRange(-1), help="Only this time-out.")
def latency(as_json: bool, rate: int, seconds: float, timeout_ms: int | None) -> None:
    """From a paced source through key_by to a sink in another process, by buffer time-out."""
    timeouts = TIMEOUTS_MS if timeout_ms is None else (timeout_ms,)
    result = run_latency_bench(rate, seconds, timeouts)
    meanings = {
        "p50_ms": "half of the records took less, at time-out 1 ms or the given one; aim 1.5",
        "p99_ms": "99 of 100 took less; aim 10",
    }
    for shown_ms in timeouts if timeout_ms is None else ():
        meanings[f"timeout_{shown_ms}_ms"] = f"all figures at buffer time-out {shown_ms} ms"
    show("Latency across two processes", result, meanings, as_json)


@bench.command()
@_JSON
@_ROUNDS
def startup(as_json: bool, rounds: int) -> None:
    """From execute() to the first record processed, on a warm and on a cold session."""
    result = run_startup_bench(rounds)
    meanings = {
        "warm_s": "seconds from execute() in a session that has run a job; the aim is 1",
        "cold_s": "seconds from the start of the Python process; the aim is 4",
        "cold_cpu_s": "seconds of CPU of all its processes for that job",
    }
    show("Start-up", result, meanings, as_json)


@bench.command()
@_JSON
@_ROUNDS
@click.option("--keys", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--records", default=2_000_000, show_default=True, type=click.IntRange(1))
@click.option(
    "--only", default="", type=click.Choice(["", "memory", "rocksdb"]), help="Only one backend."
)
def state(as_json: bool, rounds: int, keys: int, records: int, only: str) -> None:
    """Read and update a value for every record, in memory and in RocksDB, on one core."""
    result = run_state_bench(keys, records, rounds, only)
    meanings = {key: meaning for key, meaning in STATE_MEANINGS.items() if key in result}
    show("Keyed state on one core", result, meanings, as_json)


STATE_MEANINGS = {
    "memory_records_per_s": "state in memory; the aim is 800,000",
    "rocksdb_records_per_s": "state in RocksDB; the aim is 100,000",
    "rocksdb_many_keys_records_per_s": "the same with more keys than it keeps as objects",
    "rocksdb_rss_mib": "the most memory of the worker with RocksDB, everything counted",
    "plain_loop_records_per_s": "a plain loop over the same records with a dictionary",
}


@bench.command()
@_JSON
@_ROUNDS
@click.option(
    "--in-flight",
    default=256,
    show_default=True,
    type=click.IntRange(1, 448),
    help="About so many MiB are on their way in the fullest job.",
)
@click.option(
    "--sleep-ms",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1, 1000),
    help="For each record, in the sink of the other two jobs under back pressure.",
)
@click.option("--records", default=10_000_000, show_default=True, type=click.IntRange(1))
def checkpoint(as_json: bool, rounds: int, in_flight: int, sleep_ms: float, records: int) -> None:
    """Checkpoints under full back pressure, aligned and unaligned, and what they cost."""
    result = run_checkpoint_bench(in_flight, sleep_ms, records, rounds)
    show("Checkpoints", result, CHECKPOINT_MEANINGS, as_json)


CHECKPOINT_MEANINGS = {
    "aligned_ms": "from trigger to stored, barriers behind all that is in flight",
    "unaligned_ms": "the same load, barriers overtake",
    "unaligned_share": "the second against the first; the aim is 0.02 or less",
    "unaligned_full_ms": "with much more in flight; the aim is 1,000 for 256 MiB",
    "in_flight_mib": "so much that was",
    "plain_write_ms": "as many bytes, written to two files and synced by two plain threads",
    "throughput_share": "records a second with checkpoints every second; aim 0.95 or more",
    "cpu_share": "CPU of the workers for a record, with checkpoints against without",
    "checkpoints": "so many were complete in all rounds of that",
    "debloating": "whether buffers shrink before a slow consumer",
    "durations_from": "who measures",
}


@bench.command()
@_JSON
@_ROUNDS
def recovery(as_json: bool, rounds: int) -> None:
    """From a killed worker, and from a function that raises, to the first new record."""
    result = run_recovery_bench(rounds)
    show("Recovery", result, RECOVERY_MEANINGS, as_json)


RECOVERY_MEANINGS = {
    "killed_worker_s": "SIGKILL of a worker process to the first new record; the aim is 5",
    "failed_function_s": "a function raises, to the first new record; the aim is 0.5",
    "killed_worker_steps_s": "when the job was seen in which state, from the kill",
    "failed_function_steps_s": "the same from the raise",
}


@bench.command()
@_JSON
@_ROUNDS
@click.option("--records", default=10_000_000, show_default=True, type=click.IntRange(1))
def observe(as_json: bool, rounds: int, records: int) -> None:
    """What metrics, page, Prometheus and flame graphs cost a job, and how quick the page is."""
    from benchmarks.observe import run_observe_bench

    result = run_observe_bench(records, rounds)
    meanings = {key: meaning for key, meaning in OBSERVE_MEANINGS.items() if key in result}
    show("Looking at a job", result, meanings, as_json)


OBSERVE_MEANINGS = {
    "throughput_share": "records a second with everything on against off; aim 0.99 or more",
    "cpu_share": "CPU of workers and driver for a record, on against off; aim 1.01 or less",
    "worker_cpu_share": "the same of the workers alone",
    "driver_cpu": "cores that the driver's Python takes with everything on",
    "flame_share": "records a second while flame graphs are taken against on; aim 0.98 or more",
    "flame_cpu_share": "the same in CPU for a record; aim 1.02 or less",
    "first_paint_ms": "from the address to something on the page, in Chromium; aim 1,000 or less",
    "wide_updates_hz": "a page with 1,000 subtasks shows new figures so often; aim 1 or more",
    "wide_update_ms": "of the page's thread, for one of these",
    "page": "why the page was not measured",
    "report_ms": "CPU of a task with 10,000 channels for its figures, once a second",
    "report_bytes": "of the message with them",
    "on": "what everything is",
}


@bench.command()
@_JSON
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1, 600))
@click.option(
    "--only", default="", type=click.Choice(["", *SOURCES_SECTIONS]), help="Only one section."
)
def sources(as_json: bool, seconds: float, only: str) -> None:
    """What an idle source costs, and how soon its records leave, woken and polled."""
    result = run_sources_bench(seconds, only)
    meanings = {key: meaning for key, meaning in SOURCES_MEANINGS.items() if key in result}
    show("Sources", result, meanings, as_json)


@bench.command()
@_JSON
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1))
@click.option("--only", default="", type=click.Choice(["", *SCALE_SECTIONS]))
@click.option("--records", default=SCALE_RECORDS, show_default=True, type=click.IntRange(1))
@click.option(
    "--parallelism",
    "-p",
    default=None,
    type=click.IntRange(1, 128),
    help="Only this one, 128 too; of the other sections instead of 2.",
)
def scale(as_json: bool, rounds: int, only: str, records: int, parallelism: int | None) -> None:
    """How cost grows: with tasks, keys, the size of records, and exchanges in a row."""
    result = run_scale_bench(only, records, parallelism, rounds)
    if as_json:
        click.echo(json.dumps(result))
    else:
        show_scale(result)


@bench.command()
@_JSON
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.2, 600))
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Requests a second that the server takes.",
)
def calls(as_json: bool, seconds: float, limit: int) -> None:
    """Records that a model behind HTTP answers: in batches, one by one, within its limit."""
    result = run_calls_bench(seconds, limit)
    show("Calls to a model", result, CALLS_MEANINGS, as_json)


@bench.command("state-read")
@_JSON
@_ROUNDS
@click.option("--rows", default=2_000_000, show_default=True, type=click.IntRange(1))
@click.option("--only", default="", type=click.Choice(["", *STATE_READ_SECTIONS]))
def state_read(as_json: bool, rounds: int, rows: int, only: str) -> None:
    """State read from outside its job: a savepoint as a table, and keys of a job that runs."""
    result = run_state_read_bench(rows, rounds, only)
    meanings = {key: text for key, text in STATE_READ_MEANINGS.items() if key in result}
    show("State from outside", result, meanings, as_json)


def show(title: str, result: dict[str, Any], meanings: dict[str, str], as_json: bool) -> None:
    """Print a result; the table shows the figures that ``meanings`` explains, in its order."""
    if as_json:
        click.echo(json.dumps(result))
        return
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for key, meaning in meanings.items():
        table.add_row(key, _text(result[key]), meaning)
    Console().print(table)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


@bench.command()
@_JSON
@_ROUNDS
@click.option("--only", multiple=True, type=click.Choice([*ALL_PROGRAMS]), help="One program.")
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0.001, 100))
def programs(as_json: bool, rounds: int, only: tuple[str, ...], scale: float) -> None:
    """Ordinary programs on two cores, each against a plain loop on one, on embedded Spark."""
    result = run_programs_bench(only or tuple(ALL_PROGRAMS), rounds, scale)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    _show_programs("Ordinary programs on two cores", result, COLUMNS)


def _show_programs(
    title: str, programs: dict[str, dict[str, Any]], columns: dict[str, tuple[str, str]]
) -> None:
    """A row for each program; figures that it lacks are left out."""
    table = Table("program", title=title, title_justify="left")
    for heading, _ in columns.values():
        table.add_column(heading, justify="right")
    for name, figures in programs.items():
        table.add_row(name, *(_text(figures.get(key, "")) for key in columns))
    console = Console()
    console.print(table)
    for heading, meaning in columns.values():
        console.print(f"{heading}: {meaning}", highlight=False)


def _peers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    named = tuple(filter(None, value.split(",")))
    unknown = [name for name in named if name not in PEERS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(PEERS)}.", ctx, param)
    return named


@bench.command()
@_JSON
@_ROUNDS
@click.option(
    "--peers",
    "names",
    default=",".join(PEERS),
    show_default=True,
    callback=_peers,
    help="Beside whom.",
)
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0.001, 100))
@click.argument("programs", nargs=-1, metavar="[PROGRAM]...", type=click.Choice(list(COMPARED)))
def peers(
    as_json: bool, rounds: int, names: tuple[str, ...], scale: float, programs: tuple[str, ...]
) -> None:
    """The keyed counts and the ordinary programs beside Java Flink and Bytewax, in turns.

    Flink comes by Maven and Bytewax by pip, both into the user's cache.
    """
    result = run_peers_bench(programs or tuple(COMPARED), rounds, names, scale)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    columns = {
        key: column
        for key, column in PEERS_COLUMNS.items()
        if any(key in figures for figures in result["programs"].values())
    }
    _show_programs("Ordinary programs beside their peers", result["programs"], columns)
    for line in result["left_out"]:
        click.echo(line)
