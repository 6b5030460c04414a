"""Configuration, log lines and errors of Kafka clients."""

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready, PlanInvalid
from headgate.connectors.kafka.client import _LINES, ClientWatch, KafkaCluster
from headgate.connectors.libraries import library
from headgate.control.error_classes import is_final, is_outside

CLUSTER = KafkaCluster("KafkaSource", "broker:9092")


def config_of(properties: dict[str, Any], **given: Any) -> dict[str, Any]:
    cluster = KafkaCluster("KafkaSource", "broker:9092", properties)
    own = frozenset({"partition.discovery.interval.ms"})
    return cluster.config(ClientWatch("test"), given, {"client.id": "ours"}, own)


def test_properties_of_the_user_count_more_than_defaults_and_less_than_what_must_be() -> None:
    mine = {"fetch.max.bytes": 7, "client.id": "mine", "partition.discovery.interval.ms": "1"}
    config = config_of(mine, **{"fetch.max.bytes": 1, "linger.ms": 2})
    assert config["fetch.max.bytes"] == 7
    assert config["linger.ms"] == 2
    assert config["client.id"] == "ours"
    assert config["bootstrap.servers"] == "broker:9092"
    assert "partition.discovery.interval.ms" not in config


def test_properties_of_java_are_left_out_and_its_login_is_understood() -> None:
    jaas = "org.apache.ScramLoginModule required username='me' password=\"a b;c\" ;"
    config = config_of({"sasl.jaas.config": jaas, "value.deserializer": "org.apache.X"})
    assert (config["sasl.username"], config["sasl.password"]) == ("me", "a b;c")
    assert not {"sasl.jaas.config", "value.deserializer"} & set(config)
    own = config_of({"sasl.jaas.config": jaas, "sasl.password": "mine"})
    assert own["sasl.password"] == "mine"


def test_properties_do_not_show_in_texts_about_the_cluster() -> None:
    assert "secret" not in repr(KafkaCluster("KafkaSource", "b:1", {"sasl.password": "secret"}))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"default.api.timeout.ms": "soon"}, "default.api.timeout.ms is 'soon'; give a whole"),
        ({"x": ["a"]}, "the property 'x' is of type list; give a text or a number"),
    ],
)
def test_properties_that_are_none_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanInvalid, match=message):
        KafkaCluster("KafkaSource", "broker:9092", properties)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (KafkaError._AUTHENTICATION, KafkaRefused, "check security.protocol"),
        (KafkaError._SSL, KafkaRefused, "check security.protocol"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaRefused, "ask for the right"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaRefused, "create the topic"),
        (KafkaError._TIMED_OUT, KafkaUnready, "check that the servers run"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaUnready, "check that the servers run"),
        (KafkaError._BAD_MSG, ConnectorError, "reading: broker:9092: "),
    ],
)
def test_errors_say_who_is_to_do_what(code: int, kind: type[ConnectorError], advice: str) -> None:
    for error in (KafkaError(code), KafkaException(KafkaError(code))):
        problem = CLUSTER.problem(error, "reading")
        assert type(problem) is kind
        assert str(problem).startswith("KafkaSource: reading: broker:9092: ")
        assert advice in str(problem)
        assert is_outside(problem) == (kind is KafkaUnready)
        assert not is_final(problem)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (KafkaError.UNSUPPORTED_VERSION, "newer brokers"),
        (KafkaError._UNSUPPORTED_FEATURE, "newer brokers"),
    ],
)
def test_what_brokers_will_never_do_ends_the_job(code: int, advice: str) -> None:
    problem = CLUSTER.problem(KafkaError(code), "reading")
    assert is_final(problem)
    assert advice in str(problem)


def test_a_timeout_is_explained_by_what_the_client_saw_last() -> None:
    watch = ClientWatch("test")
    watch.failed(KafkaError(KafkaError._RESOLVE, "broker:9092: no such host"))
    watch.failed(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    problem = CLUSTER.problem(KafkaError(KafkaError._TIMED_OUT), "reading", watch)
    assert "last seen: broker:9092: no such host (_RESOLVE)" in str(problem)
    assert watch.refused is None
    watch.failed(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    assert watch.refused is not None
    assert isinstance(CLUSTER.problem(KafkaError(-185), "reading", watch), KafkaRefused)


def test_the_same_line_is_logged_once_and_many_lines_are_not_all_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = ClientWatch("shop-0")
    with caplog.at_level(logging.INFO):
        for tries in range(5):
            watch.log(logging.CRITICAL, "%s [%s] %s", "FAIL", "c", f"refused (after {tries}ms)")
        assert caplog.messages == ["shop-0: FAIL [c] refused (after 0ms)"]
        assert caplog.records[0].levelno == logging.WARNING
        for number in range(2 * _LINES):
            watch.log(logging.INFO, "line %s", number)
    assert len(caplog.messages) == _LINES


def test_a_library_that_is_not_installed_is_named_with_the_command() -> None:
    with pytest.raises(PlanInvalid, match="KafkaSource needs no-such-library.*\\.\\[kafka\\]"):
        library("no_such_library.part", "kafka", "KafkaSource")
