"""The file of an archive: what is in it, what does not fit, what is no archive."""

import gzip
import json
import stat
import tracemalloc
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import HeadgateError
from headgate.host.checkpoints.folder import open_folder
from headgate.observe.history import archive as archives
from headgate.observe.history.archive import (
    ArchiveDamaged,
    decode_archive,
    decode_header,
    encode_archive,
    write_archive,
)
from tests.observe.history.kit import archive, ended_job

JOB = {"jid": "ab12", "state": "FINISHED"}


def test_what_was_written_is_read_again() -> None:
    answers = {"": b'{"jid":"ab12"}', "/logs": b'{"lines":[]}', "/x?get": b"[1,2]"}
    data = encode_archive(dict(JOB), 17, answers)
    header = decode_header("a", data[:1000])
    assert (header.job, header.written_at_ms, header.left_out) == (JOB, 17, 0)
    assert decode_archive("a", [data]) == answers


def test_anybody_can_read_it_with_gzip() -> None:
    data = encode_archive(dict(JOB), 17, {"/config": b'{"settings":{}}'})
    first, second = gzip.decompress(data).splitlines()
    assert json.loads(first)["job"] == JOB
    assert json.loads(second) == {"path": "/config", "json": {"settings": {}}}


def test_what_does_not_fit_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 150)
    answers = {"": b'"' + b"a" * 50 + b'"', "/plan": b'"' + b"b" * 90 + b'"', "/logs": b"[1]"}
    data = encode_archive(dict(JOB), 17, answers)
    assert decode_header("a", data).left_out == 1
    assert list(decode_archive("a", [data])) == ["", "/logs"]


def test_a_file_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_archive(dict(JOB), 17, {"/plan": b'"' + b"b" * 100_000 + b'"'})
    monkeypatch.setattr(archives, "LARGEST", 50_000)
    with pytest.raises(ArchiveDamaged, match="it holds more than 50,000 bytes"):
        decode_archive("a", [data])


def test_json_without_bottom_is_damage() -> None:
    deep = b"[" * 5_000 + b"]" * 5_000
    header = b'{"headgate-archive":1,"version":"","written-at-ms":1,"job":{"jid":' + deep + b"}}\n"
    with pytest.raises(ArchiveDamaged):
        decode_header("a", gzip.compress(header))
    first = encode_archive(dict(JOB), 17, {})
    body = gzip.compress(b'{"path":"","json":' + deep + b"}\n")
    with pytest.raises(ArchiveDamaged):
        decode_archive("a", [gzip.compress(gzip.decompress(first)) + body])


def test_thousands_of_parts_are_refused_at_once() -> None:
    first = gzip.compress(gzip.decompress(encode_archive(dict(JOB), 17, {})))
    with pytest.raises(ArchiveDamaged, match="more than 2 parts"):
        decode_archive("a", [first + gzip.compress(b"") * 100_000])


def test_another_format_is_refused_by_its_number() -> None:
    header = {"headgate-archive": 99, "version": "9", "written-at-ms": 1, "job": {}}
    data = gzip.compress(json.dumps(header).encode() + b"\n")
    with pytest.raises(ArchiveDamaged, match="it has format 99, and this Headgate reads 1"):
        decode_header("a", data)


@pytest.mark.parametrize("line", [b"{}", b"[1", b'{"path": 7, "json": 1}', b"\xff"])
def test_lines_that_are_no_answers_are_damage(line: bytes) -> None:
    data = encode_archive(dict(JOB), 17, {}) + gzip.compress(line + b"\n")
    with pytest.raises(ArchiveDamaged):
        decode_archive("a", [data])


def test_it_is_for_its_user_alone_and_replaces_no_other(tmp_path: Path) -> None:
    path = archive(ended_job(), tmp_path / "made" / "for it")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with pytest.raises(HeadgateError, match="there is one of that name already"):
        write_archive(open_folder(str(path.parent)), "ab12", 1_000, b"other")


def test_names_of_jobs_lead_out_of_no_folder(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "archives"))
    name = write_archive(folder, "../../etc/passwd", 5, b"x")
    assert "/" not in name
    assert [path.name for path in (tmp_path / "archives").iterdir()] == [name]


def made_of(text: bytes) -> bytes:
    """An archive whose second part is this text."""
    return encode_archive(dict(JOB), 17, {})[: -len(archives._packed([]))] + gzip.compress(text)


def test_a_small_file_that_unfolds_takes_little_memory() -> None:
    for line in (b"\n", b'{"path":"","json":1}\n', b" "):
        data = made_of(line * (100 * 1024 * 1024 // len(line)))
        tracemalloc.start()
        try:
            with pytest.raises(ArchiveDamaged):
                decode_archive("a", [data])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 3 * archives.LARGEST


def test_more_answers_than_an_archive_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_archive(dict(JOB), 17, {f"/{number}": b"1" for number in range(20)})
    monkeypatch.setattr(archives, "MOST_PATHS", 10)
    with pytest.raises(ArchiveDamaged, match="it has more than 10 answers"):
        decode_archive("a", [data])
    data = encode_archive(dict(JOB), 17, {f"/{number}": b"1" for number in range(20)})
    assert (len(decode_archive("a", [data])), decode_header("a", data).left_out) == (10, 10)


def test_a_header_with_thousands_of_fields_is_refused() -> None:
    for job in ({str(number): 1 for number in range(5_000)}, {"tasks": dict.fromkeys("x" * 9, 1)}):
        header = {"headgate-archive": 1, "version": "9", "written-at-ms": 1, "job": job}
        data = gzip.compress(json.dumps(header).encode() + b"\n")
        if len(job) < 5:
            assert decode_header("a", data).job == job
            continue
        with pytest.raises(ArchiveDamaged, match="more than 100 fields"):
            decode_header("a", data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
def test_any_line_is_an_answer_or_damage_in_a_sentence(line: bytes) -> None:
    for data in (line, gzip.compress(line), gzip.compress(line + b"\n"), made_of(line + b"\n")):
        for read in (lambda: decode_header("a", data), lambda: decode_archive("a", [data])):  # noqa: B023
            with suppress(ArchiveDamaged):
                read()


@given(JSON)
def test_any_job_of_a_header_can_be_listed_or_is_damage(job: object) -> None:
    header = {"headgate-archive": 1, "version": "9", "written-at-ms": 1, "job": {"jid": job}}
    try:
        found = decode_header("a", gzip.compress(json.dumps(header).encode() + b"\n"))
    except ArchiveDamaged:
        return
    msgspec.json.encode(found.job)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_byte_is_damage_or_harmless(at: int, byte: int) -> None:
    data = bytearray(encode_archive(dict(JOB), 17, {"/plan": b'{"a":[1,2,3]}', "/logs": b"[]"}))
    data[at % len(data)] = byte
    for pieces in ([bytes(data)], [data[:9], data[9:]], [bytes([value]) for value in data]):
        with suppress(ArchiveDamaged):
            assert decode_archive("a", pieces)
