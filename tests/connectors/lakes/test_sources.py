"""Lake tables are read: one version, and what later ones append; real tables, by hand."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from headgate.api.row import Row
from headgate.base.errors import PlanInvalid, TableUnfit
from headgate.functions.source import SplitEnumerator
from tests.connectors.kit import read_some, read_to_end, task_context
from tests.connectors.lake_kit import again, found_once, numbers, read, refused


def test_a_table_is_read_as_of_now(lake: Any, place: Path) -> None:
    source = lake.source(place)
    assert found_once(source) == []
    lake.add(place, 1, 2)
    lake.add(place, 3)
    assert source.bounded
    assert source.create_enumerator(1, None).interval_ms is None
    found = sorted(read(source, found_once(source)), key=str)
    assert found == [Row(n=n, word=f"w{n}") for n in (1, 2, 3)]
    enumerator = source.create_enumerator(1, None)
    assert len(enumerator.discover()) == 2
    enumerator = again(source, enumerator)
    assert enumerator.discover() == []
    enumerator.close()


def test_a_reader_goes_on_from_its_position(lake: Any, place: Path) -> None:
    lake.add(place, *range(50))
    source = lake.source(place, columns=["n"])
    (split,) = pickle.loads(pickle.dumps(found_once(source)))
    reader = source.open(split, None, task_context())
    first = read_some(reader, 20)
    assert first is not None
    lag = reader.lag()
    assert lag is not None
    assert lag.records == 30
    position = reader.position()
    reader.close()
    other = pickle.loads(pickle.dumps(source))
    rest = read_to_end(other.open(split, position, task_context()), 7)
    assert [row["n"] for row in first + rest] == list(range(50))
    assert first[0] == Row(n=0)


def test_what_later_versions_append_is_read_once(lake: Any, place: Path) -> None:
    source = lake.source(place, follow=True)
    assert not source.bounded
    enumerator: SplitEnumerator = source.create_enumerator(1, None)
    assert enumerator.interval_ms == 1000
    assert enumerator.discover() == []
    lake.add(place, 1)
    lake.add(place, 2)
    assert numbers(source, enumerator.discover()) == [1, 2]
    enumerator = again(source, enumerator)
    assert enumerator.discover() == []
    lake.add(place, 3)
    assert numbers(source, enumerator.discover()) == [3]
    enumerator.close()


def test_only_new_rows_are_read_if_that_is_wanted(lake: Any, place: Path) -> None:
    lake.add(place, 1)
    source = lake.source(place, follow=True, only_new=True)
    enumerator = source.create_enumerator(1, None)
    assert enumerator.discover() == []
    lake.add(place, 2)
    assert numbers(source, enumerator.discover()) == [2]
    enumerator.close()


def test_a_version_that_changes_rows_ends_the_job_after_what_came_before(
    lake: Any, place: Path
) -> None:
    lake.add(place, 1)
    source = lake.source(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    lake.add(place, 2)
    lake.delete(place, "n = 1")
    assert numbers(source, enumerator.discover()) == [2]
    refused(source, enumerator, "changes or removes rows.* skip_changes=True")


def test_versions_that_change_rows_are_left_out_if_that_is_wanted(lake: Any, place: Path) -> None:
    source = lake.source(place, follow=True, skip_changes=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    lake.add(place, 1, 2)
    assert numbers(source, enumerator.discover()) == [1, 2]
    lake.delete(place, "n = 1")
    lake.add(place, 3)
    assert numbers(source, enumerator.discover()) == [3]
    enumerator.close()


def test_a_table_that_is_dropped_or_replaced_ends_the_job(lake: Any, place: Path) -> None:
    for make, problem in ((False, "is gone|has no table"), (True, "was replaced by another one")):
        source = lake.source(place, follow=True)
        enumerator = source.create_enumerator(1, None)
        enumerator.discover()
        lake.drop(place)
        if make:
            lake.make_table(place)
            lake.add(place, 1)
            lake.add(place, 2)
        refused(source, enumerator, problem)
        if not make:
            lake.make_table(place)


def test_a_missing_table_or_column_is_named(lake: Any, place: Path) -> None:
    lake.add(place, 1)
    source = lake.source(place, columns=["n", "m"])
    with pytest.raises(TableUnfit, match="olumn:? 'm'"):
        read(source, found_once(source))
    lake.drop(place)
    with pytest.raises(TableUnfit, match=lake.MISSING):
        found_once(source)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"discover_ms": 0}, "give a whole number above 0"),
        ({"only_new": True}, "reads nothing without follow=True"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    lake: Any, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        lake.source(tmp_path, **options)
