"""``bench peers`` without Flink and Bytewax: its figures, the functions of its twins, its runs."""

import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmarks.peers
from benchmarks.keyed_count import as_pair
from benchmarks.ordinary_programs import (
    CLASSIFY,
    WINDOW_MS,
    Records,
    is_interesting,
    is_payment,
    make_visit,
    page_of,
    parse_event,
    parse_sale,
    user_of,
    user_of_event,
    words_of_log,
)
from benchmarks.peers.bench import figures, run_peers_bench
from benchmarks.peers.bytewax_functions import (
    add_cents,
    add_order_or_payment,
    add_time,
    add_to_totals,
    add_up,
    add_visit_row,
    count_alarm,
    count_page,
    keep_last,
    market_and_sum,
    market_key,
    order_and_counts,
    order_as_pair,
    payment_as_pair,
    reading_key,
    user_of_visit_row,
    visit_row,
)
from benchmarks.peers.compared import COMPARED, with_length
from benchmarks.peers.contenders import JavaFlink, PeerFailed, run_peer
from headgate.api.row import Row

FOLDER = Path(benchmarks.peers.__file__).parent


def test_ratios_are_those_of_medians() -> None:
    found = figures({"headgate": [10, 30, 20], "java": [8, 8, 80], "bytewax": [4]})
    assert (found["vs_java"], found["vs_bytewax"]) == (2.5, 5.0)
    assert (found["headgate"], found["java"]) == (20, 8)
    assert found["records_per_s_all"]["java"] == [8, 8, 80]


def test_a_program_without_a_twin_has_no_ratio() -> None:
    assert "vs_java" not in figures({"headgate": [1], "bytewax": [2]})


def test_a_peer_that_cannot_be_had_is_left_out_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (line,) = run_peers_bench((), rounds=1, peers=("java",), scale=1)["left_out"]
    assert "mvn" in line
    maven = tmp_path / "mvn"
    maven.write_text(f"#!{sys.executable}\nprint('[ERROR] no such jar\\nmore')\nexit(1)\n")
    for tool in (maven, tmp_path / "java"):
        tool.touch()
        tool.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (line,) = run_peers_bench((), rounds=1, peers=("java",), scale=1)["left_out"]
    assert line == "left out: Java Flink: mvn has failed: [ERROR] no such jar"


def test_a_run_that_fails_says_why_and_leaves_no_process() -> None:
    script = "sleep 50 & echo $!; echo broken >&2; exit 3"
    with pytest.raises(PeerFailed, match="has ended with 3:\n[0-9]+\nbroken") as failed:
        run_peer(["sh", "-c", script], os.environ)
    pid = failed.value.message.splitlines()[1]
    deadline = time.monotonic() + 10
    while _runs(pid):
        assert time.monotonic() < deadline, "its child outlived it"
        time.sleep(0.05)


def _runs(pid: str) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    return done.stdout.strip()[:1] not in ("", "Z")


def test_every_program_has_its_twins() -> None:
    cases = r'case "([a-z-]+)":'
    java = (FOLDER / "java/src/main/java/peers/Program.java").read_text()
    assert set(re.findall(cases, java)) == set(JavaFlink.programs) <= set(COMPARED)
    twins = re.findall(r'^    "([a-z-]+)": \w+,$', (FOLDER / "bytewax_flows.py").read_text(), re.M)
    assert twins == list(COMPARED)


# The functions of the Bytewax twins, with the states that stateful_map would hand them.

Pairs = Iterator[tuple[Any, Any]]


def by(key: Callable[[Any], Any], records: Iterable[Any]) -> Pairs:
    return ((key(record), record) for record in records)


def stateful(function: Callable[[Any, Any], tuple[Any, Any]], pairs: Iterable[Any]) -> Pairs:
    states: dict[Any, Any] = defaultdict(lambda: None)
    for key, value in pairs:
        states[key], found = function(states[key], value)
        yield key, found


def values(pairs: Pairs) -> Iterator[Any]:
    return (value for _, value in pairs)


def json_totals(lines: Records) -> Iterator[Any]:
    events = filter(is_interesting, map(parse_event, lines))
    return map(json.dumps, values(stateful(add_to_totals, by(user_of_event, events))))


def json_windows(lines: Records) -> Iterator[Any]:
    sums: dict[tuple[str, int], int] = {}
    for sale in map(parse_sale, lines):
        place = market_key(sale), sale.at // WINDOW_MS
        sums[place] = add_cents(sums.get(place, 0), sale)
    return (market_and_sum((market, (window, cents))) for (market, window), cents in sums.items())


def two_exchanges(rows: Records) -> Iterator[Any]:
    visited = values(stateful(count_page, by(user_of, map(make_visit, rows))))
    return stateful(add_time, by(page_of, visited))


def two_streams(events: Records) -> Iterator[Any]:
    pairs = (payment_as_pair(it) if is_payment(it) else order_as_pair(it) for it in events)
    return map(order_and_counts, stateful(add_order_or_payment, pairs))


TWINS: dict[str, Callable[[Records], Iterable[Any]]] = {
    "count-words": lambda words: stateful(add_up, map(as_pair, words)),
    "count-lengths": lambda words: stateful(add_up, map(with_length, words)),
    "json-totals": json_totals,
    "json-windows": json_windows,
    "two-exchanges": two_exchanges,
    "log-counts": lambda lines: stateful(add_up, (it for at in lines for it in words_of_log(at))),
    "typed-rows": lambda rows: values(
        stateful(add_visit_row, by(user_of_visit_row, map(visit_row, rows)))
    ),
    "two-streams": two_streams,
    "last-values": lambda rows: values(stateful(keep_last, by(user_of, map(make_visit, rows)))),
    "alarms": lambda rows: values(stateful(count_alarm, by(reading_key, map(CLASSIFY.map, rows)))),
}


@pytest.mark.parametrize("name", sorted(TWINS))
def test_functions_of_twins_give_what_the_plain_loop_gives(name: str) -> None:
    records = COMPARED[name].make(3000, 0)
    expected: Records = []
    COMPARED[name].plain(records, expected.append)
    assert list(TWINS[name](records)) == [
        tuple(record) if isinstance(record, Row) else record for record in expected
    ]
