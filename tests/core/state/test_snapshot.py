"""A key group as bytes: read as it was written, and refused when it is not what it should be."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import StateBroken
from headgate.core.state.snapshot import (
    EVENT_TIMER,
    LIST,
    MAP,
    TTL,
    VALUE,
    GroupWriter,
    read_group,
    write_group,
)
from tests.core.state.kit import keys

ENTRIES: list[Any] = [
    (VALUE, "count", None, "a", 1),
    (LIST + TTL, "seen", ("w", 0, 5), [1, 2], [(1, 1000), (2, 1001)]),
    (MAP, "visits", None, None, {"x": [1], None: None}),
    (EVENT_TIMER, "", ("w", 0, 5), {"k": 1}, 4),
]

entries = st.tuples(
    st.sampled_from([VALUE, LIST, MAP, EVENT_TIMER]), st.text(max_size=3), keys, keys, keys
)


@given(st.lists(entries, max_size=5))
def test_what_is_read_is_what_was_written(written: list[Any]) -> None:
    assert list(read_group(3, 8, write_group(3, 8, written))) == written


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1000])
def test_any_number_of_entries_comes_back_in_order(count: int) -> None:
    written = [(VALUE, "n", None, number, str(number)) for number in range(count)]
    writer = GroupWriter(127, 128)
    for entry in written:
        writer.add(entry)
    assert list(read_group(127, 128, writer.finish())) == written


def test_the_form_is_fixed() -> None:
    data = write_group(5, 128, ENTRIES[:1])
    magic, version, group, groups, count, checksum = struct.unpack_from("<4sBHHQI", data)
    assert (magic, version, group, groups, count) == (b"HgKG", 1, 5, 128, 1)
    assert checksum == zlib.crc32(data[21:])


def test_every_bit_counts() -> None:
    data = write_group(2, 8, ENTRIES)
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 4
        with pytest.raises(StateBroken, match="the snapshot of key group 2"):
            list(read_group(2, 8, bytes(broken)))


def test_every_byte_counts() -> None:
    data = write_group(2, 8, ENTRIES)
    for length in range(len(data)):
        with pytest.raises(StateBroken, match="the snapshot of key group 2"):
            list(read_group(2, 8, data[:length]))
    with pytest.raises(StateBroken, match="was cut or changed"):
        read_group(2, 8, data + b"x")


@pytest.mark.parametrize(
    ("group", "groups", "problem"),
    [
        (1, 8, "key group 1 holds key group 2"),
        (2, 16, "written with a maximum parallelism of 8, the job has 16; set it to 8"),
    ],
)
def test_a_group_that_belongs_elsewhere_is_refused(group: int, groups: int, problem: str) -> None:
    with pytest.raises(StateBroken, match=problem):
        read_group(group, groups, write_group(2, 8, ENTRIES))


def test_another_version_is_refused_by_its_number() -> None:
    data = bytearray(write_group(2, 8, ENTRIES))
    data[4] = 9
    with pytest.raises(StateBroken, match="has the version 9, this side reads 1; install"):
        read_group(2, 8, bytes(data))


def test_nothing_is_given_before_all_was_checked() -> None:
    data = write_group(2, 8, [(VALUE, "n", None, number, 0) for number in range(600)])
    with pytest.raises(StateBroken):
        read_group(2, 8, data[:-1])


@pytest.mark.parametrize("entry", [(VALUE, "lock", None, "k", lambda: 1)])
def test_what_cannot_be_pickled_is_named(entry: Any) -> None:
    with pytest.raises(
        StateBroken, match=r"the state 'lock' \(value\) of the key 'k'.*must be picklable"
    ):
        write_group(2, 8, [*ENTRIES, entry])


class Gone:
    """A class that is removed between writing and reading."""


def test_a_class_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_group(2, 8, [(VALUE, "v", None, "k", Gone())])
    monkeypatch.delitem(globals(), "Gone")
    with pytest.raises(StateBroken, match="cannot be read .*Gone.*under their old names"):
        list(read_group(2, 8, data))
