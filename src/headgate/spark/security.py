"""What protects a job on Spark: the session's own authentication, and the way of the job's secret.

Whoever can speak to an unprotected driver or executor of Spark can read what it serves and send it
tasks, whatever Headgate does on its own connections. A local session that Headgate makes is
protected; an existing one, or a cluster, is checked when a job starts.

Spark keeps the function of a stage as a block, which it gives to everybody who can speak to its
block service; so the function holds the job's contact without the secret. On the driver's own
machine workers read the secret from a file that only the user can read. On a cluster it is a local
property of the Spark job, which Spark sends with each task, and leaves out of its event log. A lazy
DataFrame on a cluster, and Spark Connect, have no such properties: their functions hold the secret,
and ``spark.authenticate`` (with Connect also TLS to the server) has to protect it.
"""

import logging
import os
import re
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.base.errors import PathUnusable, RunRefused, SessionFailed
from headgate.host.files.owned_folder import shared_folder
from headgate.host.net.contact import DriverContact
from headgate.spark.cluster import cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY: Final = "headgate.job.secret"
_MOST_BYTES: Final = 1024

log = logging.getLogger(__name__)

AUTHENTICATE: Final = "spark.authenticate"
ENCRYPTIONS: Final = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
)
"""Any of them encrypts and authenticates what follows Spark's handshake."""
REQUIRED: Final = "security.require-spark-authentication"
_ONE_PROCESS: Final = re.compile(r"local(\[[^]]*\])?")
_warned: Final[set[str]] = set()
_lock: Final = threading.Lock()


def is_one_process(master: str) -> bool:
    """Whether driver and executor are one JVM, so that Spark makes a secret for itself."""
    return _ONE_PROCESS.fullmatch(master) is not None


def protected_options() -> dict[str, str]:
    """For a session of one process; Spark makes the secret, so that no command line shows it."""
    return {AUTHENTICATE: "true", ENCRYPTIONS[0]: "true", "spark.ui.killEnabled": "false"}


def check_authentication(session: "SparkSession", *, required: bool) -> None:
    """Warn of an unprotected session, once; refuse it with SessionFailed if that is required."""
    cluster = cluster_of(session)
    problem = exposure(cluster.configuration(), cluster.master, cluster.open_channel)
    if not problem:
        return
    if required:
        raise SessionFailed(f"{problem} ({REQUIRED} is true)")
    with _lock:
        is_new = cluster.application_id not in _warned
        _warned.add(cluster.application_id)
    if is_new:
        log.warning("%s", problem)


def exposure(conf: Mapping[str, str], master: str, open_channel: str = "") -> str:
    """What is wrong with a session, in one sentence; nothing if it is protected."""
    if open_channel:
        return (
            f"INSECURE: the channel to the Spark Connect server {open_channel} is not encrypted, "
            f"so that whoever stands between can read and change the code of the job and its "
            f"secret; put ;use_ssl=true into the address (see SECURITY.md)"
        )

    def is_on(key: str) -> bool:
        return conf.get(key, "false").lower() == "true"

    # One process has no connections to encrypt.
    wanted = f"{AUTHENTICATE}=true"
    wanted += "" if is_one_process(master) else f" and {ENCRYPTIONS[0]}=true"
    advice = f"start it with {wanted} (see SECURITY.md)"
    # On one machine it is no more than the advice to be careful with a network of others.
    mark = "" if is_one_process(master) else "INSECURE: "
    if not is_on(AUTHENTICATE):
        return (
            f"{mark}this Spark session has no {AUTHENTICATE}, so that whoever reaches its "
            f"ports can read the job's data and run code as its user; {advice}"
        )
    if not is_one_process(master) and not any(map(is_on, ENCRYPTIONS)):
        return (
            f"INSECURE: this Spark session does not encrypt its connections, so that whoever "
            f"stands between its machines can read and change what they say; {advice}"
        )
    return ""


@dataclass(frozen=True, slots=True)
class PublicContact:
    """A contact as it travels with Spark; a worker completes it."""

    contact: DriverContact
    file: str = ""
    """Where the secret stands; empty: in Spark's local property, unless the contact has it."""

    def complete(self) -> DriverContact:
        """In a worker, on the thread of Spark's task; raises RunRefused if the job is over."""
        if self.contact.secret:
            return self.contact
        return self.contact.with_secret(_read(self.file) if self.file else _property())


class SecretDelivery:
    """The driver's side: it keeps what workers need until ``close``."""

    def __init__(self, session: "SparkSession", secret: bytes, *, lazy: bool, local: bool) -> None:
        """``lazy``: somebody else's thread starts the Spark jobs."""
        self._secret = secret
        self._file = _write(secret) if local else ""
        self._by_property = not local and not lazy and cluster_of(session).hides_property(PROPERTY)

    def public(self, contact: DriverContact) -> PublicContact:
        """The contact for the function of a stage."""
        if self._file or self._by_property:
            return PublicContact(contact.without_secret(), self._file)
        return PublicContact(contact)

    def attach(self, session: "SparkSession") -> None:
        """On the thread that is about to start a Spark job: let its tasks have the secret."""
        if self._by_property:
            cluster_of(session).set_property(PROPERTY, self._secret.hex())

    def close(self) -> None:
        """The job is over. Idempotent."""
        if self._file:
            with suppress(OSError):
                os.unlink(self._file)


def _property() -> bytes:
    from pyspark import BarrierTaskContext

    text = BarrierTaskContext.get().getLocalProperty(PROPERTY)
    if not text:
        raise SessionFailed(f"Spark has not sent the local property {PROPERTY} with this task")
    return bytes.fromhex(text)


def _write(secret: bytes) -> str:
    path = os.path.join(shared_folder("secrets"), f"{secrets.token_hex(8)}.secret")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
    except OSError as error:
        problem = f"cannot be written, so that no worker gets the job's secret: {error.strerror}"
        raise PathUnusable(path, problem) from error
    return path


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise RunRefused("the job is over, and its secret gone") from None
    with open(descriptor, "rb") as file:
        return file.read(_MOST_BYTES)
