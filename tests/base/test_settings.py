"""Settings: Flink's keys and defaults, units, bounds, and refusals that name the key.

Rows 31, 58-60, 112, 114, 142.
"""

import dataclasses
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SettingsInvalid
from headgate.base.recovery_settings import (
    CheckpointSettings,
    RecoverySettings,
    RestartKind,
    RestartSettings,
)
from headgate.base.redaction import HIDDEN, redacted
from headgate.base.setting_fields import FORMER_KEYS, SettingsGroup
from headgate.base.settings import (
    GIB,
    KIB,
    MIB,
    Compression,
    ExchangeSettings,
    FlowControl,
    JobSettings,
    LogSettings,
    RestSettings,
    RuntimeMode,
    StateBackendKind,
    StateCompression,
    StateSettings,
    Storage,
    TransportKind,
    describe_settings,
)

GROUPS = (
    JobSettings,
    LogSettings,
    CheckpointSettings,
    RecoverySettings,
    RestartSettings,
    StateSettings,
    ExchangeSettings,
    RestSettings,
)
GROUP_OF: dict[str, type[SettingsGroup]] = {
    field.metadata["key"]: group for group in GROUPS for field in fields(group)
}


def test_the_defaults_are_those_of_the_inventory() -> None:
    settings = ExchangeSettings()
    assert settings.segment_bytes == 32 * KIB
    assert settings.memory_fraction == 0.1
    assert (settings.memory_min_bytes, settings.memory_max_bytes) == (64 * MIB, GIB)
    assert (settings.buffers_per_channel, settings.floating_per_gate) == (2, 8)
    assert settings.buffer_timeout_ms == 100
    assert settings.flow_control is FlowControl.CREDIT


def test_buffers_are_debloated_to_a_second_unless_the_settings_say_no() -> None:
    settings = ExchangeSettings()
    assert settings.debloat, "in Flink it is off"
    assert (settings.debloat_target_ms, settings.debloat_period_ms) == (1_000, 200)
    assert (settings.debloat_samples, settings.debloat_threshold_percent) == (20, 25)
    assert settings.min_buffer_bytes == 256
    key = "taskmanager.network.memory.buffer-debloat"
    texts = {f"{key}.enabled": "false", f"{key}.target": "2 s", f"{key}.samples": "5"}
    parsed = ExchangeSettings.parse(texts)
    assert (parsed.debloat, parsed.debloat_target_ms, parsed.debloat_samples) == (False, 2_000, 5)


def test_water_marks_follow_the_segment() -> None:
    settings = ExchangeSettings(segment_bytes=1000)
    assert (settings.low_water_bytes, settings.high_water_bytes) == (1001, 2000)


def test_state_is_in_memory_unless_the_user_says_otherwise() -> None:
    settings = StateSettings()
    assert settings.backend is StateBackendKind.HASHMAP
    assert settings.rocksdb_memory_bytes == 256 * MIB
    assert settings.rocksdb_folder == ""


def test_keys_and_units_of_state_are_those_of_flink() -> None:
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
    ("key", "text", "field", "value"),
    [
        ("taskmanager.memory.segment-size", "16kb", "segment_bytes", 16 * KIB),
        ("taskmanager.memory.segment-size", " 16 KB ", "segment_bytes", 16 * KIB),
        ("taskmanager.memory.segment-size", "4096", "segment_bytes", 4096),
        ("taskmanager.memory.segment-size", "512b", "segment_bytes", 512),
        ("taskmanager.memory.segment-size", "1k", "segment_bytes", KIB),
        ("taskmanager.memory.segment-size", "1m", "segment_bytes", MIB),
        ("taskmanager.memory.network.max", "2g", "memory_max_bytes", 2 * GIB),
        ("taskmanager.memory.network.max", "2gb", "memory_max_bytes", 2 * GIB),
        ("taskmanager.memory.network.min", "128mb", "memory_min_bytes", 128 * MIB),
        ("taskmanager.memory.network.fraction", "0.25", "memory_fraction", 0.25),
        ("execution.buffer-timeout.interval", "-1", "buffer_timeout_ms", -1),
        ("execution.buffer-timeout.interval", "0", "buffer_timeout_ms", 0),
        ("execution.buffer-timeout.interval", "20 ms", "buffer_timeout_ms", 20),
        ("heartbeat.interval", "2s", "heartbeat_interval_ms", 2000),
        ("heartbeat.timeout", "3 min", "heartbeat_timeout_ms", 180_000),
        ("exchange.flow-control", "TCP", "flow_control", FlowControl.TCP),
        ("exchange.compression", "lz4", "compression", Compression.LZ4),
        ("exchange.transport", "poll", "transport", TransportKind.POLL),
        ("taskmanager.network.blocking-shuffle.type", "mmap", "storage", Storage.MMAP),
        ("security.ssl.internal.enabled", "True", "tls_enabled", True),
        ("security.ssl.internal.enabled", "false", "tls_enabled", False),
        ("taskmanager.bind-host", "0.0.0.0", "bind_host", "0.0.0.0"),
    ],
)
def test_a_text_becomes_a_value(key: str, text: str, field: str, value: object) -> None:
    parsed = ExchangeSettings.parse({key: text})
    assert getattr(parsed, field) == value
    assert type(getattr(parsed, field)) is type(value)


def test_keys_of_other_rooms_are_left_alone() -> None:
    assert ExchangeSettings.parse({"spark.app.name": "x", "a": "?"}) == ExchangeSettings()


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        (
            "taskmanager.memory.segment-size",
            "big",
            "'big' is not a whole number; it may end",
        ),
        ("taskmanager.memory.segment-size", "", "'' is not a whole number"),
        ("taskmanager.memory.segment-size", "kb", "'kb' is not a whole number"),
        ("taskmanager.memory.segment-size", "1.5kb", "is not a whole number"),
        ("taskmanager.memory.segment-size", "--5kb", "is not a whole number"),
        ("taskmanager.memory.segment-size", "²kb", "is not a whole number"),
        (
            "taskmanager.memory.segment-size",
            "10s",
            "with a unit: kb, k, mb, m, gb, g, b",
        ),
        (
            "execution.buffer-timeout.interval",
            "10kb",
            "with a unit: ms, s, min, h, d",
        ),
        (
            "taskmanager.network.memory.buffers-per-channel",
            "2kb",
            "'2kb' is not a whole number",
        ),
        ("taskmanager.memory.network.fraction", "a tenth", "is not a number"),
        ("taskmanager.memory.network.fraction", "nan", "nan is below 0"),
        ("exchange.flow-control", "window", "'window' is none of credit, tcp"),
        (
            "security.ssl.internal.enabled",
            "yes",
            "'yes' is neither true nor false",
        ),
        ("state.backend.type", "filesystem", "none of hashmap, rocksdb"),
        ("state.backend.rocksdb.memory", "1mb", "below"),
        (
            "state.backend.rocksdb.memory",
            "lots",
            "not a whole number; it may end with a unit: kb",
        ),
        ("state.backend.rocksdb.memory.objects-fraction", "1", "not below 1"),
        ("state.backend.rocksdb.memory.objects-fraction", "-0.1", "below 0"),
        ("state.backend.rocksdb.memory.write-buffer-ratio", "0", "below 0.01"),
        ("state.backend.rocksdb.memory.write-buffer-ratio", "1.5", "not below 1"),
        ("state.backend.rocksdb.compression", "gzip", "none of none, lz4, zstd"),
        ("state.backend.rocksdb.thread.num", "0", "below 1"),
        ("execution.checkpointing.timeout", "9", "9 is below 10"),
        (
            "execution.checkpointing.max-concurrent-checkpoints",
            "0",
            "0 is below 1",
        ),
        (
            "execution.checkpointing.mode",
            "twice",
            "none of exactly_once, at_least_once",
        ),
        (
            "execution.checkpointing.data-inline-threshold",
            "-1",
            "-1 is below 0",
        ),
        (
            "execution.checkpointing.data-inline-threshold",
            "2 mb",
            "above 1048576",
        ),
        (
            "execution.checkpointing.unaligned.enabled",
            "sometimes",
            "neither true nor false",
        ),
        ("execution.checkpointing.num-retained", "0", "below 1"),
        ("execution.checkpointing.incremental", "some", "neither true nor false"),
        (
            "pipeline.job-id",
            "a b",
            "'a b' is no id; give up to 64 letters, digits, - and _",
        ),
        ("pipeline.job-id", "../other", "is no id"),
        ("pipeline.job-id", "é", "is no id"),
        ("pipeline.job-id", 65 * "x", "is no id"),
        (
            "restart-strategy.type",
            "sometimes",
            "none of default, none, fixed-delay",
        ),
        ("restart-strategy.fixed-delay.attempts", "-1", "below 0"),
        (
            "restart-strategy.exponential-delay.max-backoff",
            "10 ms",
            "below the first pause of 1000",
        ),
        ("restart-strategy.exponential-delay.jitter-factor", "1.5", "above 1"),
        (
            "restart-strategy.exponential-delay.backoff-multiplier",
            "0.5",
            "below 1",
        ),
        (
            "restart-strategy.exponential-delay.backoff-multiplier",
            "inf",
            "above 1e",
        ),
        (
            "restart-strategy.exponential-delay.backoff-multiplier",
            "nan",
            "below 1",
        ),
        ("restart-strategy.failure-rate.failure-rate-interval", "0", "below 1"),
        ("restart-strategy.max-identical-failures", "0", "0 is below 1"),
        ("parallelism.default", "0", "-1 leaves the choice to Headgate"),
        ("parallelism.default", "-2", "-2 is below -1"),
        ("pipeline.max-parallelism", "0", "-1 leaves the choice to Headgate"),
        ("pipeline.max-parallelism", "many", "not a whole number"),
    ],
)
def test_a_wrong_text_is_refused_with_its_key(key: str, text: str, problem: str) -> None:
    with pytest.raises(SettingsInvalid, match=problem) as caught:
        GROUP_OF[key].parse({key: text})
    assert caught.value.key == key
    assert key in str(caught.value)


SETTINGS = [field for group in GROUPS for field in fields(group)]
BOUNDED = [field for field in SETTINGS if field.metadata["low"] is not None]


@pytest.mark.parametrize("setting", BOUNDED, ids=lambda setting: setting.metadata["key"])
def test_a_value_below_its_bound_is_refused_with_its_key(
    setting: dataclasses.Field[object],
) -> None:
    low = setting.metadata["low"]
    with pytest.raises(SettingsInvalid, match=f"{low - 1} is below {low}") as caught:
        GROUP_OF[setting.metadata["key"]](**{setting.name: low - 1})
    assert caught.value.key == setting.metadata["key"]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"memory_fraction": 1.0}, "taskmanager.memory.network.fraction"),
        ({"memory_fraction": float("inf")}, "taskmanager.memory.network.fraction"),
        ({"memory_min_bytes": 2 * GIB}, "taskmanager.memory.network.min"),
        ({"segment_bytes": 2 * GIB}, "taskmanager.memory.segment-size"),
        (
            {"backoff_initial_ms": 11, "backoff_max_ms": 10},
            "taskmanager.network.request-backoff.initial",
        ),
        (
            {"buffers_per_channel": 0, "floating_per_gate": 0},
            "taskmanager.network.memory.floating-buffers-per-gate",
        ),
        ({"heartbeat_interval_ms": 9, "heartbeat_timeout_ms": 8}, "heartbeat.timeout"),
        ({"bind_port": 65_536}, "taskmanager.data.port"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, int], key: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        ExchangeSettings(**values)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "values",
    [
        {"memory_min_bytes": GIB, "memory_max_bytes": GIB},
        {"backoff_initial_ms": 10, "backoff_max_ms": 10},
        {"buffers_per_channel": 0, "floating_per_gate": 1},
        {"buffers_per_channel": 1, "floating_per_gate": 0},
        {"heartbeat_interval_ms": 9, "heartbeat_timeout_ms": 9},
        {"bind_port": 65_535},
        {"buffer_timeout_ms": -1},
    ],
)
def test_values_at_the_edge_are_accepted(values: dict[str, int]) -> None:
    settings = ExchangeSettings(**values)
    assert {name: getattr(settings, name) for name in values} == values


@given(st.text(), st.sampled_from(sorted(GROUP_OF)))
def test_no_text_breaks_the_parser(text: str, key: str) -> None:
    with suppress(SettingsInvalid):
        parsed = GROUP_OF[key].parse({key: text})
        assert dataclasses.replace(parsed) == parsed


def test_every_setting_has_a_key_of_its_own_and_a_meaning() -> None:
    rows = describe_settings()
    keys = [key for key, _, _ in rows]
    assert len(set(keys)) == len(keys)
    assert len(keys) == sum(len(fields(group)) for group in GROUPS)
    assert all(meaning.endswith(".") for _, _, meaning in rows)


@pytest.mark.parametrize("group", GROUPS)
def test_the_described_default_is_what_parsing_it_gives(group: type[SettingsGroup]) -> None:
    described = {key: default for key, default, _ in describe_settings()}
    if group is CheckpointSettings:  # barriers overtake at once if somebody writes "true"
        del described["execution.checkpointing.unaligned.enabled"]
    assert group.parse(described) == group()


@pytest.mark.parametrize(
    ("group", "key", "text", "field", "value"),
    [
        (JobSettings, "pipeline.operator-chaining", "false", "chaining", False),
        (ExchangeSettings, "execution.buffer-timeout", "7 ms", "buffer_timeout_ms", 7),
        (ExchangeSettings, "taskmanager.network.memory.max", "2g", "memory_max_bytes", 2 * GIB),
        (ExchangeSettings, "taskmanager.network.memory.min", "1m", "memory_min_bytes", MIB),
        (ExchangeSettings, "taskmanager.network.memory.fraction", "0.2", "memory_fraction", 0.2),
        (ExchangeSettings, "taskmanager.net.request-backoff.initial", "3", "backoff_initial_ms", 3),
        (ExchangeSettings, "taskmanager.net.request-backoff.max", "300", "backoff_max_ms", 300),
        (RestSettings, "web.port", "9000", "port", 9000),
        (RestSettings, "web.address", "0.0.0.0", "bind_address", "0.0.0.0"),
        (CheckpointSettings, "state.backend.fs.checkpointdir", "here", "folder", "here"),
        (CheckpointSettings, "state.backend.changelog.enabled", "true", "changelog", True),
        (CheckpointSettings, "state.checkpoints.dir", "old", "folder", "old"),
        (CheckpointSettings, "state.savepoints.dir", "old", "savepoint_folder", "old"),
        (CheckpointSettings, "state.checkpoint-storage", "filesystem", "storage", "filesystem"),
        (CheckpointSettings, "state.storage.fs.memory-threshold", "1kb", "inline_bytes", 1024),
        (RecoverySettings, "execution.savepoint.path", "old", "path", "old"),
        (
            RecoverySettings,
            "execution.savepoint.ignore-unclaimed-state",
            "true",
            "ignores_unclaimed",
            True,
        ),
        (RecoverySettings, "state.checkpoints.num-retained", "3", "retained", 3),
        (RecoverySettings, "state.backend.incremental", "true", "incremental", True),
        (RestartSettings, "restart-strategy", "fixed-delay", "kind", RestartKind.FIXED_DELAY),
        (StateSettings, "state.backend", "rocksdb", "backend", StateBackendKind.ROCKSDB),
        (
            CheckpointSettings,
            "execution.checkpointing.recover-without-channel-state.checkpoint-id",
            "12",
            "ignored_in_flight",
            12,
        ),
    ],
)
def test_a_deprecated_key_that_flink_reads_takes_effect_unless_the_new_one_is_given(
    group: type[SettingsGroup], key: str, text: str, field: str, value: object
) -> None:
    assert getattr(group.parse({key: text}), field) == value
    default = {of_today: default for of_today, default, _ in group.describe()}[FORMER_KEYS[key]]
    both = group.parse({key: text, FORMER_KEYS[key]: default})
    assert getattr(both, field) == getattr(group(), field)


def test_a_wrong_text_under_a_deprecated_key_is_refused_with_the_key_that_was_written() -> None:
    with pytest.raises(SettingsInvalid) as refused:
        ExchangeSettings.parse({"execution.buffer-timeout": "soon"})
    assert refused.value.key == "execution.buffer-timeout"


def test_buffers_wait_until_they_are_full_if_the_buffer_timeout_is_disabled() -> None:
    texts = {"execution.buffer-timeout.interval": "5 ms"}
    key = "execution.buffer-timeout.enabled"
    assert ExchangeSettings.parse({**texts, key: "false"}).buffer_timeout_ms == -1
    assert ExchangeSettings.parse({**texts, key: "true"}).buffer_timeout_ms == 5


def test_of_two_deprecated_keys_for_one_setting_the_first_that_flink_asks_for_counts() -> None:
    texts = {"jobmanager.web.address": "10.0.0.1", "web.address": "10.0.0.2"}
    assert RestSettings.parse(texts).bind_address == "10.0.0.2"


def test_settings_of_a_job_are_parsed_beside_those_of_the_exchange() -> None:
    texts = {
        "parallelism.default": "4",
        "execution.runtime-mode": "BATCH",
        "pipeline.object-reuse": "true",
        "exchange.burst-frames": "3",
    }
    settings = JobSettings.parse(texts)
    assert (settings.parallelism, settings.runtime_mode) == (4, RuntimeMode.BATCH)
    assert settings.object_reuse
    assert ExchangeSettings.parse(texts) == ExchangeSettings(burst_frames=3)


def test_secrets_are_hidden_in_what_people_see_by_their_key_and_within_values() -> None:
    open_settings = {
        "pipeline.name": "words",
        "execution.checkpointing.dir": "s3://bucket/checkpoints",
        "parallelism.default": "4",
        "state.backend.rocksdb.bloom-filter.bits-per-key": "10",
    }
    secrets = {
        "rest.token": "t0p",
        "execution.checkpointing.hmac.secret": "t0p",
        "spark.hadoop.fs.s3a.access.key": "t0p",
        "spark.hadoop.fs.azure.account.key.here": "t0p",
        "spark.ssl.keyPassword": "t0p",
        "spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.keyStorePassword=t0p",
        "sink.url": "postgresql://me:t0p@database/orders",
    }
    shown = redacted({**open_settings, **secrets})
    assert {key: shown[key] for key in open_settings} == open_settings
    assert {shown[key] for key in secrets} == {HIDDEN}
