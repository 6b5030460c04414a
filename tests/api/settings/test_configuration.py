"""Configuration: typed texts, unknown keys, and what an environment makes of them."""

import copy

import pytest

from headgate.base.errors import PlanInvalid, SettingsInvalid
from headgate.common import ConfigOptions, Configuration
from headgate.datastream import (
    EmbeddedRocksDBStateBackend,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)


def test_values_come_back_as_they_were_set() -> None:
    configuration = (
        Configuration()
        .set_string("a", "text")
        .set_integer("b", 3)
        .set_boolean("c", True)
        .set_float("d", 0.1)
        .set_bytearray("e", bytearray(b"\x00\xff"))
    )
    assert configuration.get_string("a", "") == "text"
    assert configuration.get_integer("b", 0) == 3
    assert configuration.get_boolean("c", False) is True
    assert configuration.get_float("d", 0) == 0.1
    assert configuration.get_bytearray("e", bytearray()) == bytearray(b"\x00\xff")
    assert configuration.to_dict() == {"a": "text", "b": "3", "c": "true", "d": "0.1", "e": "00ff"}


def test_values_of_a_dictionary_have_the_type_that_they_were_set_with() -> None:
    first = Configuration().set_string("s", "3").set_integer("i", 3).set_boolean("b", True)
    first.set_float("f", 1.5).set_bytearray("y", bytearray(b"ab"))
    first.set(ConfigOptions.key("o").int_type().no_default_value(), 7)
    copied = Configuration(first)
    prefixed = Configuration().add_all(first, "p.")
    expected = {"s": "3", "i": 3, "b": True, "f": 1.5, "y": b"ab", "o": 7}
    for found, prefix in ((first, ""), (copied, ""), (prefixed, "p.")):
        target: dict[str, object] = {"other": None}
        found.add_all_to_dict(target)
        wanted = {"other": None} | {prefix + key: value for key, value in expected.items()}
        assert {key: (type(value), value) for key, value in target.items()} == {
            key: (type(value), value) for key, value in wanted.items()
        }
    assert first.get_string("i", "") == "3"
    assert first.get_string("b", "") == "true"


def test_texts_of_a_configuration_show_no_secret() -> None:
    secret = Configuration().set_string("rest.token", "hush")
    assert "hush" not in str(secret)
    assert "hush" not in repr(secret)


def test_execution_configs_are_equal_if_all_that_they_hold_is() -> None:
    first, second = (StreamExecutionEnvironment().get_config() for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    for change in (
        lambda config: config.set_parallelism(3),
        lambda config: config.enable_object_reuse(),
        lambda config: config.disable_closure_cleaner(),
        lambda config: config.set_global_job_parameters({"a": "b"}),
    ):
        change(first)
        assert first != second
        change(second)
        assert first == second
    assert first != Configuration()


def test_a_missing_key_gives_the_default() -> None:
    configuration = Configuration()
    assert configuration.get_string("k", "x") == "x"
    assert configuration.get_integer("k", 4) == 4
    assert configuration.get_boolean("k", True) is True
    assert configuration.get_float("k", 1) == 1.0


def test_a_text_of_another_kind_is_told_by_its_key() -> None:
    configuration = Configuration().set_string("k", "many")
    for read in (configuration.get_integer, configuration.get_boolean, configuration.get_float):
        with pytest.raises(SettingsInvalid, match="setting k: 'many' is not"):
            read("k", 1)


def test_keys_can_be_listed_removed_and_taken_over() -> None:
    original = Configuration().set_string("a", "1")
    copied = Configuration(original).set_string("b", "2")
    assert original.key_set() == {"a"}
    assert copied.contains_key("b") and not original.contains_key("b")
    assert copied.remove_config("b") and not copied.remove_config("b")
    assert original == copied
    assert Configuration().add_all(original, "p.").to_dict() == {"p.a": "1"}
    target: dict[str, str] = {}
    original.add_all_to_dict(target)
    assert target == {"a": "1"}
    assert repr(original) == "Configuration({'a': '1'})"


def test_environment_keeps_keys_that_nobody_knows(env: StreamExecutionEnvironment) -> None:
    env.configure(Configuration().set_string("my.own.key", "x"))
    env.get_configuration().set_string("another", "y")
    assert env.get_configuration().get_string("my.own.key", "") == "x"
    assert env.get_configuration().get_string("another", "") == "y"


def test_environment_refuses_a_known_key_with_a_wrong_value(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(SettingsInvalid, match=r"parallelism\.default"):
        env.configure(Configuration().set_string("parallelism.default", "many"))
    with pytest.raises(PlanInvalid, match="give a Configuration"):
        env.configure({"parallelism.default": "2"})  # type: ignore[arg-type]
    assert env.get_configuration().to_dict() == {}


def test_settings_of_the_exchange_are_checked_before_the_job_starts(
    env: StreamExecutionEnvironment,
) -> None:
    env.configure(Configuration().set_string("exchange.burst-frames", "0"))
    env.from_collection([1])
    with pytest.raises(SettingsInvalid, match="burst-frames"):
        env.execute()


def test_configuration_reaches_operators_and_graph() -> None:
    configuration = (
        Configuration()
        .set_integer("parallelism.default", 2)
        .set_integer("pipeline.max-parallelism", 64)
        .set_string("execution.runtime-mode", "BATCH")
        .set_boolean("pipeline.object-reuse", True)
        .set_boolean("pipeline.operator-chaining.enabled", False)
        .set_string("execution.buffer-timeout.interval", "20 ms")
        .set_string("pipeline.name", "mine")
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).map(str)
    graph = env.get_stream_graph()
    assert (graph.batch, graph.object_reuse, graph.chaining) == (True, True, False)
    assert (graph.buffer_timeout_ms, graph.job_name) == (20, "mine")
    assert [(n.parallelism, n.max_parallelism) for n in graph.nodes.values()] == [(1, 64), (2, 64)]


def test_methods_of_the_environment_write_the_same_keys(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2).set_max_parallelism(8).set_buffer_timeout(-1)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).disable_operator_chaining()
    env.get_config().enable_object_reuse()
    assert env.get_configuration().to_dict() == {
        "parallelism.default": "2",
        "pipeline.max-parallelism": "8",
        "execution.buffer-timeout.interval": "-1",
        "execution.runtime-mode": "BATCH",
        "pipeline.operator-chaining.enabled": "false",
        "pipeline.object-reuse": "true",
    }


def test_execution_config_reads_what_the_environment_has(env: StreamExecutionEnvironment) -> None:
    config = env.get_config()
    assert (config.get_parallelism(), config.get_max_parallelism()) == (-1, -1)
    assert not config.is_object_reuse_enabled()
    assert config.enable_object_reuse().is_object_reuse_enabled()
    assert not config.disable_object_reuse().is_object_reuse_enabled()
    config.set_parallelism(3).set_max_parallelism(9)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 9)


def test_job_parameters_come_from_the_program_before_the_configuration(
    env: StreamExecutionEnvironment,
) -> None:
    env.configure(Configuration().set_string("pipeline.global-job-parameters", "a:1, b:x:y"))
    env.get_config().set_global_job_parameters({"a": "2"})
    assert env.get_config().get_global_job_parameters() == {"a": "2", "b": "x:y"}


def test_configuration_is_made_of_a_dict_copied_and_used_as_a_key() -> None:
    made = Configuration.from_dict({"a": "1", "b": "x"})
    assert made.to_dict() == {"a": "1", "b": "x"}
    assert {made: 1}[Configuration.from_dict({"b": "x", "a": "1"})] == 1
    copied = copy.deepcopy(made)
    copied.set_string("a", "2")
    assert made.get_string("a", "") == "1"
    assert str(made) == "{'a': '1', 'b': 'x'}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a;b", ["a", "b"]),
        ("a", ["a"]),
        ("[a, b]", ["a", "b"]),
        ("['a;1', \"b\"]", ["a;1", "b"]),
        ("[]", []),
        ("- a\n- b c", ["a", "b c"]),
        ('["a,1", c]', ["a,1", "c"]),
        ("['it''s', off, 1]", ["it's", "off", "1"]),
        (" a ; b ", [" a ", " b "]),
        ("[a", ["[a"]),
        ("file:/a;file:/b", ["file:/a", "file:/b"]),
        ("'[a, b]'", ["'[a, b]'"]),
    ],
)
def test_lists_in_texts_are_lists_of_yaml_or_have_semicolons(text: str, parts: list[str]) -> None:
    assert Configuration.parse_list_value(text) == parts


def test_what_only_a_jvm_has_is_kept_and_told_again(env: StreamExecutionEnvironment) -> None:
    config = env.get_config()
    assert (config.is_closure_cleaner_enabled(), config.is_force_kryo_enabled()) == (True, False)
    config.disable_closure_cleaner().enable_force_kryo().enable_force_avro()
    config.disable_generic_types().set_task_cancellation_interval(7)
    config.set_use_snapshot_compression(True).set_global_job_parameters({"n": 1}).set_parallelism(2)
    assert not config.is_closure_cleaner_enabled()
    assert config.is_force_kryo_enabled()
    assert config.is_force_avro_enabled()
    assert config.has_generic_types_disabled()
    assert config.get_task_cancellation_interval() == 7
    assert config.is_use_snapshot_compression()
    assert config.get_global_job_parameters() == {"n": "1"}
    config.enable_closure_cleaner().disable_force_kryo().disable_force_avro().enable_generic_types()
    assert config.is_closure_cleaner_enabled()
    assert not (config.is_force_kryo_enabled() or config.is_force_avro_enabled())
    assert not config.has_generic_types_disabled()
    assert config.get_default_kryo_serializer_classes() == {}
    assert config.get_registered_kryo_types() == config.get_registered_pojo_types() == []


def test_deprecated_keys_that_flink_reads_reach_the_environment_and_its_graph() -> None:
    texts = {
        "pipeline.operator-chaining": "false",
        "execution.buffer-timeout": "20 ms",
        "state.backend": "rocksdb",
        "state.backend.incremental": "true",
        "state.backend.changelog.enabled": "false",
    }
    env = StreamExecutionEnvironment(Configuration.from_dict(texts))
    env.from_collection([1]).map(str)
    graph = env.get_stream_graph()
    assert (graph.chaining, graph.buffer_timeout_ms) == (False, 20)
    assert not env.is_chaining_enabled()
    assert env.get_buffer_timeout() == 20
    assert env.get_state_backend() == EmbeddedRocksDBStateBackend(True)
    assert env.is_changelog_state_backend_enabled() is False
    assert env.set_buffer_timeout(5).get_buffer_timeout() == 5
