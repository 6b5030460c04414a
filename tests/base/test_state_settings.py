"""Settings of state: Flink's keys, units, bounds, and refusals that name the key."""

import dataclasses
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SettingsInvalid
from headgate.base.settings import (
    MIB,
    ExchangeSettings,
    JobSettings,
    StateBackendKind,
    StateCompression,
    StateSettings,
)

KEYS = [f.metadata["key"] for f in fields(StateSettings)]


def test_state_is_in_memory_unless_the_user_says_otherwise() -> None:
    settings = StateSettings()
    assert settings.backend is StateBackendKind.HASHMAP
    assert settings.rocksdb_memory_bytes == 256 * MIB
    assert settings.rocksdb_folder == ""


def test_keys_and_units_are_those_of_flink() -> None:
    texts = {
        "state.backend.type": "RocksDB",
        "state.backend.rocksdb.memory": "64mb",
        "state.backend.rocksdb.localdir": " fast disk ",
        "state.backend.rocksdb.compression": "zstd",
        "state.backend.rocksdb.thread.num": "4",
        "parallelism.default": "2",
    }
    assert StateSettings.parse(texts) == StateSettings(
        backend=StateBackendKind.ROCKSDB,
        rocksdb_memory_bytes=64 * MIB,
        rocksdb_folder="fast disk",
        rocksdb_compression=StateCompression.ZSTD,
        rocksdb_threads=4,
    )


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("state.backend.type", "filesystem", "none of hashmap, rocksdb"),
        ("state.backend.rocksdb.memory", "1mb", "below"),
        ("state.backend.rocksdb.memory", "lots", "not a whole number; it may end with a unit: kb"),
        ("state.backend.rocksdb.memory.objects-fraction", "1", "not below 1"),
        ("state.backend.rocksdb.memory.objects-fraction", "-0.1", "below 0"),
        ("state.backend.rocksdb.memory.write-buffer-ratio", "0", "below 0.01"),
        ("state.backend.rocksdb.memory.write-buffer-ratio", "1.5", "not below 1"),
        ("state.backend.rocksdb.compression", "gzip", "none of none, lz4, zstd"),
        ("state.backend.rocksdb.thread.num", "0", "below 1"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_key(key: str, text: str, words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words) as refused:
        StateSettings.parse({key: text})
    assert refused.value.key == key


@given(st.text(), st.sampled_from(KEYS))
def test_no_text_breaks_the_parser(text: str, key: str) -> None:
    with suppress(SettingsInvalid):
        parsed = StateSettings.parse({key: text})
        assert dataclasses.replace(parsed) == parsed


def test_a_key_belongs_to_one_group_of_settings() -> None:
    others = {f.metadata["key"] for kind in (JobSettings, ExchangeSettings) for f in fields(kind)}
    assert not others & set(KEYS)


def test_the_older_name_of_the_backend_counts_unless_the_new_one_is_there() -> None:
    assert StateSettings.parse({"state.backend": "rocksdb"}).backend is StateBackendKind.ROCKSDB
    both = {"state.backend": "rocksdb", "state.backend.type": "hashmap"}
    assert StateSettings.parse(both).backend is StateBackendKind.HASHMAP
    with pytest.raises(SettingsInvalid, match="state.backend: 'heap' is none of"):
        StateSettings.parse({"state.backend": "heap"})
