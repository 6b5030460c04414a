"""How the secret of a job reaches its workers, outside of what Spark serves to whoever asks.

Spark keeps the function of a stage as a block, which it gives to everybody who can speak to its
block service; so the function holds the job's contact without the secret. On the driver's own
machine workers read the secret from a file that only the user can read. On a cluster it is a local
property of the Spark job, which Spark sends with each task, and leaves out of its event log. A
DataFrame is executed by anybody's thread at any time, and has no such properties: on a cluster its
function holds the secret, and ``spark.authenticate`` has to protect it.
"""

import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import PathUnusable, RunRefused, SessionFailed
from headgate.host.net.contact import DriverContact
from headgate.spark.python_files import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY: Final = "headgate.job.secret"
_REDACTED: Final = "(?i)secret|password|token|access[.]?key"
"""What Spark leaves out of its logs and pages if nobody says otherwise."""
_MOST_BYTES: Final = 1024


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
        self._by_property = not local and not lazy and _is_redacted(session)

    def public(self, contact: DriverContact) -> PublicContact:
        """The contact for the function of a stage."""
        if self._file or self._by_property:
            return PublicContact(contact.without_secret(), self._file)
        return PublicContact(contact)

    def attach(self, session: "SparkSession") -> None:
        """On the thread that is about to start a Spark job: let its tasks have the secret."""
        if self._by_property:
            session.sparkContext.setLocalProperty(PROPERTY, self._secret.hex())

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


def _is_redacted(session: "SparkSession") -> bool:
    """Whether the property stays out of Spark's event log, as far as one can see to that."""
    spark: Any = session.sparkContext._jsc
    conf = spark.sc().conf()
    try:
        is_redacted = re.search(conf.get("spark.redaction.regex", _REDACTED), PROPERTY)
    except re.error:  # Java knows more of them than Python
        return False
    if not is_redacted:
        return False
    # Spark redacts those local properties alone whose names its configuration has, too.
    conf.set(PROPERTY, "")
    return True


@cache
def _folder() -> str:
    return scratch_folder()


def _write(secret: bytes) -> str:
    path = os.path.join(_folder(), f"{secrets.token_hex(8)}.secret")
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
