"""``headgate state``: what a checkpoint holds, for people and for machines."""

import json
from functools import partial
from pathlib import Path

import pytest

from headgate import ValueStateDescriptor, state
from tests.cli.kit import Headgate, in_process
from tests.host.saved_state.kit import UNTYPED, Order, write_people


@pytest.fixture
def headgate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headgate:
    return partial(in_process, monkeypatch, capsys, "state")


@pytest.fixture
def people(tmp_path: Path) -> str:
    return write_people(tmp_path / "people")


def test_operators_states_sizes_counts_and_rows_are_shown(headgate: Headgate, people: str) -> None:
    done = headgate(people)
    assert done.returncode == 0
    words = [line.split() for line in done.stdout.splitlines()]
    assert words[2][:6] == ["people", "Keyed", "Process,", "1", "task,", "128"]
    assert ["total", "value", "Types.LONG()", "3", "3"] in [line[:5] for line in words]
    assert ["key=eve", "value=7"] in words
    assert ["domain=event", "time_ms=3000", "key=bob"] in words
    assert any(line[:2] == ["state=rules", "kind=broadcast"] for line in words)


def test_nothing_in_a_checkpoint_moves_the_cursor_of_a_terminal(
    headgate: Headgate, tmp_path: Path
) -> None:
    evil = "\x1b[2J\r\n"
    changes = state.operator(f"u{evil}", name=f"n{evil}").put(
        ValueStateDescriptor(f"s{evil}"), {f"k{evil}": f"v{evil}"}
    )
    path = state.write(str(tmp_path / "evil"), changes, name=f"job{evil}")
    shown = headgate(path).stdout
    assert "value=v [2J" in shown
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_machines_get_one_object(headgate: Headgate, people: str) -> None:
    done = headgate(people, "--json", "--uid", "people", "--state", "visits", "--limit", "1")
    found = json.loads(done.stdout)
    (operator,) = found["operators"]
    (visits,) = operator["states"]
    assert (operator["uid"], operator["parallelism"], operator["max_parallelism"]) == (
        "people",
        1,
        128,
    )
    assert (visits["kind"], visits["keys"], len(visits["rows"])) == ("map", 2, 1)
    assert visits["types"] == ["Types.STRING()", "Types.LONG()"]


def test_what_is_not_there_is_answered_with_what_is(headgate: Headgate, people: str) -> None:
    unknown = headgate(people, "--uid", "counts")
    assert unknown.returncode == 2
    assert "no operator 'counts'; those with state are 'people'" in unknown.stderr
    assert "it has 'total', 'seen'" in headgate(people, "--state", "nope").stderr
    nothing = headgate(people + "-none")
    assert nothing.returncode == 2
    assert "there is nothing here" in nothing.stderr


def test_classes_that_are_not_loaded_are_said(headgate: Headgate, tmp_path: Path) -> None:
    orders = state.operator("orders").put(UNTYPED, {"tea": Order(3, "tea")})
    path = state.write(str(tmp_path / "orders"), orders)
    done = headgate(path)
    assert "kit.Order(number=3, item='tea')" in done.stdout
    assert "values of tests.host.saved_state.kit.Order are shown by their parts" in done.stderr
    loaded = headgate(path, "--load-classes")
    assert "value=Order(number=3, item='tea')" in loaded.stdout
    assert not loaded.stderr
