"""Whether Spark's own ports are protected.

Whoever can speak to an unprotected driver or executor of Spark can read what it serves and send it
tasks, whatever Headgate does on its own connections. A local session that Headgate makes is
protected; one that is found, or a cluster, is looked at when a job starts.
"""

import logging
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headgate.base.errors import SessionFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    context = session.sparkContext
    problem = exposure(dict(context.getConf().getAll()), context.master or "")
    if not problem:
        return
    if required:
        raise SessionFailed(f"{problem} ({REQUIRED} is true)")
    with _lock:
        is_new = context.applicationId not in _warned
        _warned.add(context.applicationId)
    if is_new:
        log.warning("%s", problem)


def exposure(conf: Mapping[str, str], master: str) -> str:
    """What is wrong with a session, in one sentence; nothing if it is protected."""

    def is_on(key: str) -> bool:
        return conf.get(key, "false").lower() == "true"

    advice = f"start it with {AUTHENTICATE}=true and {ENCRYPTIONS[0]}=true (see SECURITY.md)"
    if not is_on(AUTHENTICATE):
        return (
            f"INSECURE: this Spark session has no {AUTHENTICATE}, so that whoever reaches its "
            f"ports can read the job's data and run code as its user; {advice}"
        )
    if not is_one_process(master) and not any(map(is_on, ENCRYPTIONS)):
        return (
            f"INSECURE: this Spark session does not encrypt its connections, so that whoever "
            f"stands between its machines can read and change what they say; {advice}"
        )
    return ""
