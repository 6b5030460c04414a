"""A local user without the secret: Spark's block service of a session gives nothing away."""

import logging
import os
import pickle
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import RunRefused, SessionFailed
from headgate.base.messages import Address
from headgate.base.settings import JobSettings
from headgate.host.net.contact import DriverContact
from headgate.spark import cluster, security, submission
from headgate.spark.security import (
    PROPERTY,
    PublicContact,
    SecretDelivery,
    check_authentication,
    exposure,
)
from tests.spark.programs import collected, environment
from tests.spark.stranger import fetch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTACT = DriverContact(("127.0.0.1", 1), "job", b"s" * 32)


def part(spark: "SparkSession", name: str) -> Any:
    """A part of Spark's own; by its field, for Py4J cannot load what some methods speak of."""
    context: Any = spark.sparkContext
    field = context._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField(name)
    field.setAccessible(True)
    return field.get(context._jsc.sc().env())


@pytest.fixture(scope="module")
def open_service(spark: "SparkSession") -> Iterator[Address]:
    """The same blocks behind a service without authentication, as sessions had it before."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.authenticate", "false")
    conf.set("spark.app.id", str(spark.sparkContext.applicationId))
    none = jvm.scala.Option.empty()
    entry = jvm.org.apache.spark.internal.config.ConfigBuilder("no.file").stringConf()
    service = jvm.org.apache.spark.network.netty.NettyBlockTransferService(
        conf, jvm.org.apache.spark.SecurityManager(conf, none, entry.createOptional()),
        part(spark, "serializerManager"), "127.0.0.1", "127.0.0.1", 0, 1, None,
    )  # fmt: skip
    service.init(part(spark, "blockManager"))
    yield "127.0.0.1", service.port()
    service.close()


def address_of(spark: "SparkSession") -> tuple[Address, str]:
    """Spark's own service, and what it calls itself."""
    own = part(spark, "blockManager").blockManagerId()
    return (own.host(), own.port()), own.executorId()


class Watched:
    """The secrets of all jobs that are prepared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secrets: list[bytes] = []
        self.files: list[str] = []
        make = SecretDelivery.__init__

        def init(delivery: SecretDelivery, session: Any, secret: bytes, **how: bool) -> None:
            make(delivery, session, secret, **how)
            self.secrets.append(secret)
            self.files.append(delivery._file)

        monkeypatch.setattr(SecretDelivery, "__init__", init)
        self.closures: list[bytes] = []
        public = SecretDelivery.public

        def keep(delivery: SecretDelivery, contact: DriverContact) -> PublicContact:
            made = public(delivery, contact)
            self.closures.append(pickle.dumps(made))
            return made

        monkeypatch.setattr(SecretDelivery, "public", keep)

    def check(self, served: Iterable[bytes]) -> None:
        """Neither what was given to Spark nor what Spark serves has the secret."""
        (secret,) = self.secrets
        assert self.closures
        for data in (*self.closures, *served):
            assert secret not in data and secret.hex().encode() not in data


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def blocks(spark: "SparkSession", address: Address) -> dict[int, bytes]:
    """What a stranger gets of all broadcasts so far."""
    app, (_, executor) = str(spark.sparkContext.applicationId), address_of(spark)
    newest = spark.sparkContext.broadcast(0)._jbroadcast.id()
    pieces = (
        (number, fetch(address, app, executor, f"broadcast_{number}_piece0"))
        for number in range(max(0, newest - 40), newest + 1)
    )
    return {number: piece for number, piece in pieces if piece is not None}


def test_a_stranger_gets_no_block_of_a_session_that_headgate_has_made(
    spark: "SparkSession", open_service: Address
) -> None:
    keep = spark.sparkContext.broadcast("words that everybody may know")
    address, executor = address_of(spark)
    app = str(spark.sparkContext.applicationId)
    block = f"broadcast_{keep._jbroadcast.id()}_piece0"
    assert fetch(open_service, app, executor, block), "the attack works where nothing is done"
    assert fetch(address, app, executor, block) is None


@pytest.mark.parametrize("delivered", ["by file", "by property"])
@pytest.mark.parametrize("kind", ["program", "reads a DataFrame"])
def test_what_spark_keeps_of_a_job_does_not_hold_its_secret(
    spark: "SparkSession", open_service: Address, watched: Watched,
    monkeypatch: pytest.MonkeyPatch, delivered: str, kind: str,
) -> None:  # fmt: skip
    if delivered == "by property":
        monkeypatch.setattr(submission, "SecretDelivery", _ByProperty)
    before = blocks(spark, open_service)
    env = environment()
    if kind == "program":
        stream = env.from_collection([1, 2, 3]).map(lambda number: 2 * number)
    else:
        rows = spark.createDataFrame([(1,), (2,), (3,)], "n int")
        stream = env.from_dataframe(rows).map(lambda row: 2 * row[0])
    assert collected(stream) == [2, 4, 6]
    new = {n: piece for n, piece in blocks(spark, open_service).items() if n not in before}
    assert new, "Spark may have dropped some of them already"
    watched.check(new.values())
    assert all(not os.path.exists(file) for file in watched.files)


class _ByProperty(SecretDelivery):
    """As on a cluster."""

    def __init__(self, session: Any, secret: bytes, *, lazy: bool, local: bool) -> None:
        super().__init__(session, secret, lazy=lazy, local=False)


def test_a_lazy_dataframe_keeps_its_secret_out_of_its_plan(
    spark: "SparkSession", open_service: Address, watched: Watched
) -> None:
    frame: Any = environment().from_collection([(1,), (2,)]).to_dataframe("n int")
    assert sorted(row.n for row in frame.collect()) == [1, 2]
    assert frame.rdd.count() == 2
    watched.check(blocks(spark, open_service).values())


def test_the_file_of_a_secret_is_its_users_alone(spark: "SparkSession") -> None:
    delivery = SecretDelivery(spark, b"s" * 32, lazy=False, local=True)
    public = delivery.public(CONTACT)
    assert public.contact.secret == b"" and public.complete() == CONTACT
    path = Path(public.file)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    delivery.close()
    delivery.close()
    with pytest.raises(RunRefused, match="the job is over"):
        public.complete()


def test_a_secret_as_property_stays_out_of_the_event_log(spark: "SparkSession") -> None:
    delivery = SecretDelivery(spark, b"s" * 32, lazy=False, local=False)
    assert delivery.public(CONTACT) == PublicContact(CONTACT.without_secret())
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]
    logged = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", jvm.scala.Option.empty(), jvm.java.net.URI("file:///tmp"), conf
    )
    properties = jvm.java.util.Properties()
    properties.setProperty(PROPERTY, "73" * 32)
    properties.setProperty("other", "words")
    written = logged.redactProperties(properties)
    assert written.getProperty("other") == "words"
    assert "73" not in written.getProperty(PROPERTY)


def test_a_secret_that_would_be_logged_is_no_property(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function holds it then, as that of a lazy DataFrame on a cluster does."""
    for lazy, is_redacted in ((False, False), (True, True)):
        monkeypatch.setattr(cluster, "_is_redacted", lambda *_, safe=is_redacted: safe)
        delivery = SecretDelivery(spark, b"s" * 32, lazy=lazy, local=False)
        assert delivery.public(CONTACT) == PublicContact(CONTACT)


def test_nothing_that_is_secret_stands_on_a_command_line_or_in_the_settings(
    spark: "SparkSession",
) -> None:
    secret = _spark_secret(spark)
    assert len(secret) >= 32
    words = "\n".join(value for pair in spark.sparkContext.getConf().getAll() for value in pair)
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words += process.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
    assert secret not in words


def _spark_secret(spark: "SparkSession") -> str:
    return str(part(spark, "securityManager").getSecretKey())


def test_what_spark_puts_on_disk_is_its_users_alone(spark: "SparkSession") -> None:
    folders = part(spark, "blockManager").diskBlockManager().localDirsString()
    for folder in folders:
        above = Path(folder).parent
        assert stat.S_IMODE(above.stat().st_mode) == 0o700


# Sessions that are not protected.

GOOD = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("conf", "master", "problem"),
    [
        ({}, "local[4]", "no spark.authenticate"),
        ({}, "spark://host:7077", "no spark.authenticate"),
        ({"spark.authenticate": "true"}, "local[4]", ""),
        ({"spark.authenticate": "true"}, "local", ""),
        ({"spark.authenticate": "true"}, "local-cluster[2,1,1024]", "does not encrypt"),
        ({"spark.authenticate": "true"}, "yarn", "does not encrypt"),
        ({"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, "yarn", ""),
        ({"spark.authenticate": "TRUE", "spark.network.crypto.enabled": "true"}, "yarn", ""),
        ({"spark.network.crypto.enabled": "true"}, "yarn", "no spark.authenticate"),
    ],
)
def test_a_session_is_judged_by_its_settings(
    conf: dict[str, str], master: str, problem: str
) -> None:
    said = exposure(conf, master)
    assert (problem in said) if problem else not said


def test_one_process_is_not_advised_to_encrypt_connections() -> None:
    """It has none, and what is not needed cannot fail."""
    assert "start it with spark.authenticate=true (see" in exposure({}, "local[4]")
    assert "true and spark.network.crypto.enabled=true" in exposure({}, "spark://host:7077")


def test_a_channel_to_a_connect_server_must_be_encrypted() -> None:
    said = exposure(GOOD, "yarn", "sc://far")
    assert "sc://far is not encrypted" in said and "use_ssl=true" in said


def test_a_session_that_headgate_makes_is_protected(spark: "SparkSession") -> None:
    check_authentication(spark, required=True)
    conf = dict(spark.sparkContext.getConf().getAll())
    assert conf["spark.ui.killEnabled"] == "false"


def test_an_unprotected_session_is_told_once_and_refused_on_request(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(security, "AUTHENTICATE", "spark.no-such-setting")
    monkeypatch.setattr(security, "_warned", set())
    caplog.set_level(logging.WARNING, "headgate")
    for _ in range(2):
        assert collected(environment().from_collection([1])) == [1]
    (record,) = [record for record in caplog.records if "has no spark.no-such" in record.message]
    assert record.message.count(". ") == 0 and "run code as its user" in record.message
    assert "INSECURE" not in record.message, "its master is local"
    assert security.exposure({}, "spark://host:7077").startswith("INSECURE: this Spark session")
    env = environment()
    env.get_configuration().set_string(security.REQUIRED, "true")
    with pytest.raises(SessionFailed, match="security.require-spark-authentication is true"):
        collected(env.from_collection([1]))


def test_the_setting_that_refuses_is_off_by_default() -> None:
    assert not JobSettings().spark_authentication
    assert JobSettings.parse({security.REQUIRED: "true"}).spark_authentication
