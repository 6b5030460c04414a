"""The Spark session that a job runs in: the one that is there, or a local one made on demand.

A session of the user's own, a notebook's or spark-submit's is taken as it is. One that is made here
is quiet, listens on the loopback address only, lets nobody in who does not know the secret that
Spark makes for it, and keeps its files from others. Ctrl-C: PySpark starts the JVM with SIGINT
ignored, and its Python workers live in a process group of their own, so that only this process is
hit. PySpark's handler tries to cancel all Spark jobs and raises KeyboardInterrupt; do not count on
the first: Headgate cancels its own job when the interrupt reaches it.
"""

import os
import re
import shlex
import shutil
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import SessionFailed, SparkMissing
from headgate.base.settings import JobSettings
from headgate.host.files.owned_folder import shared_folder
from headgate.spark.class_archive import class_archive, make_at_exit
from headgate.spark.cluster import LOOPBACK, Slots, cluster_of
from headgate.spark.connect import (
    REMOTE,
    check_packages,
    connect_session,
    open_connect,
    remote_of,
)
from headgate.spark.exit_daemon import exit_daemon_options
from headgate.spark.java import (
    SUBMIT_OPTIONS,
    Java,
    ensure_java,
    java_start,
    quick_start_options,
)
from headgate.spark.security import AUTHENTICATE, is_one_process, protected_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST: Final = (4, 0)
NEXT_UNKNOWN: Final = (4, 4)
FEWEST_CORES: Final = 4
LOCAL_SLOTS: Final = 32
SLOTS_OF_A_CORE: Final = 4
"""In a local session that is made here. Slots are threads, and cost nothing until a task uses them;
but a stage of Spark's own may use all of them, and Spark shares its memory out among that many."""
CONNECT_TIMEOUT_S: Final = 5.0
LOG_FILE: Final = "log4j2.properties"
ENVIRONMENT_FILE: Final = "spark-env.sh"
PYTHON: Final = "python.executable"

on_started: Final[list[Callable[[], None]]] = []
"""Called for every session that is made or found here, on the thread that does so."""


def find_session(
    settings: Mapping[str, str] | None = None, *, cores: int | None = None, needed: int = 0
) -> "SparkSession":
    """The active session, or a new one.

    Of `settings` only the keys that begin with `spark.` matter, and only to a new session. `cores`
    is the number of slots of a local session. Without it there are 32, four for each core, or as
    many as are `needed`; for DataFrames it still counts as the cores of the machine, 4 at least.
    """
    check_version()
    given = settings or {}
    if (session := active_session()) is not None:
        return _noticed(session)
    return _open_remote(given) or _start(given, cores, needed)


def active_session() -> "SparkSession | None":
    """The session of this process, if one runs."""
    if "pyspark.sql" not in sys.modules:
        return None
    if (session := connect_session()) is not None:
        return session
    try:
        from pyspark import SparkContext
    except ImportError:  # a PySpark for Connect alone
        return None
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is None:
        return None
    if context._jsc is None or context._jsc.sc().isStopped():
        context.stop()  # the JVM's half has ended; forget ours, so that a new one can be made
        return None
    # Threads that PySpark has not made have no active session; the builder knows the default one.
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def spark_version() -> str | None:
    """The version of the installed PySpark, without loading it."""
    if find_spec("pyspark") is None:
        return None
    for name in ("pyspark", "pyspark-client"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    import pyspark  # comes with a Spark distribution, as a folder on the path

    return str(pyspark.__version__)


def is_known(found: str) -> bool:
    """Whether Headgate is tested with this version of PySpark."""
    return OLDEST <= _numbers(found) < NEXT_UNKNOWN


def check_version() -> None:
    """Refuse a PySpark that is missing or too old; a newer one may well work."""
    found = spark_version()
    if found is None or _numbers(found) < OLDEST:
        raise SparkMissing(found)


def check_python(session: "SparkSession", executable: str) -> None:
    """Refuse another Python than the one that the session's workers run; none: as it is."""
    if not executable:
        return
    found = cluster_of(session).python
    if not found:
        raise SessionFailed(
            f"{PYTHON} is {executable}, but a Spark Connect server runs the workers with a Python "
            f"of its own; leave it out, and start the server with PYSPARK_PYTHON"
        )
    if shutil.which(executable) != shutil.which(found):
        raise SessionFailed(
            f"{PYTHON} is {executable}, but the Spark session that runs already has "
            f"{found}; set it before the session is made, or set PYSPARK_PYTHON"
        )


def slots(session: "SparkSession") -> Slots:
    """How many barrier tasks fit into the session's executors as they are now, and how many run."""
    return cluster_of(session).slots()


def await_slots(
    session: "SparkSession", count: int, timeout_s: float = 30.0, profile: object | None = None
) -> Slots:
    """Wait until executors with `count` slots have registered; what there is after the time."""
    deadline = time.monotonic() + timeout_s
    while (
        found := cluster_of(session).slots(profile)
    ).total < count and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _numbers(found: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", found)[:2])


def _start(settings: Mapping[str, str], cores: int | None, needed: int) -> "SparkSession":
    given = {key: value for key, value in settings.items() if key.startswith("spark.")}
    remote = remote_of(given)
    if remote:  # `local[4]`: PySpark starts a Connect server in this process
        check_packages()
        given["spark.master"] = remote
    options = {"spark.app.name": "headgate", **given}
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has read its files and flags already
        return _build({**_submitted_options(given), **options})
    sharing = _class_sharing(settings, ensure_java(spark_version() or ""))
    files = spark_defaults()
    master = chosen_master(given, files)
    if master and not master.startswith("local"):
        _check_master(master)
        with _environment(**({"PYSPARK_PYTHON": settings[PYTHON]} if PYTHON in settings else {})):
            quiet = _quiet_options()
            return _build({**quiet, **files, **options, "spark.master": master}, sharing)
    sizes = {} if master or cores else _size_options()
    master = master or f"local[{cores or _local_slots(needed)}]"
    options = {**_quiet_options(), **_local_options(master), **sizes, **files, **options}
    options["spark.master"] = master
    python = settings.get(PYTHON) or sys.executable
    if PYTHON in settings and shutil.which(python) is None:
        raise SessionFailed(
            f"{PYTHON} is {python}, which is no program here; one within an archive does not work, "
            f"because Spark starts its workers first"
        )
    if PYTHON not in settings:
        options = {**exit_daemon_options(), **options}
    environment = {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": LOOPBACK}
    if "spark.local.dir" not in options and "SPARK_LOCAL_DIRS" not in os.environ:
        # What Spark puts on disk there, it lets everybody read.
        environment["SPARK_LOCAL_DIRS"] = shared_folder("spark")
    if remote:
        del options["spark.master"]
        options[REMOTE] = remote
    with _environment(**environment):
        return _build(options, f"{sharing} {_quick_start(options)}".strip())


def _class_sharing(settings: Mapping[str, str], java: Java | None) -> str:
    """Options for a JVM that starts from an archive of its classes; see to it that there is one."""
    if java is None or not JobSettings.parse(settings).class_archive:
        return ""
    given = shlex.split(os.environ.get(SUBMIT_OPTIONS, ""))
    if any(word.startswith(("-Xshare:", "-XX:SharedArchiveFile=")) for word in given):
        return ""
    if (archive := class_archive(java)) is None:
        return ""
    if not (found := archive.start_options()):
        make_at_exit(archive)
    return found


def _quick_start(options: Mapping[str, str]) -> str:
    """Options for the JVM of a local session; none if a script of the user's may give it others."""
    has_script = (_conf_folder() / ENVIRONMENT_FILE).exists()
    return "" if has_script else quick_start_options(options, os.environ)


def _open_remote(settings: Mapping[str, str]) -> "SparkSession | None":
    """A session of the Connect server that the settings name; None: they name none elsewhere."""
    remote = remote_of(settings)
    if not remote or remote.startswith("local"):
        return None
    return _noticed(open_connect(remote, settings))


def _check_master(master: str) -> None:
    """A standalone master that nobody serves costs Spark a minute and a riddle; ask first."""
    if not master.startswith("spark://"):
        return
    troubles = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
            return
        except (OSError, ValueError) as error:
            troubles.append(f"{place}: {error}")
    raise SessionFailed(
        f"no Spark master answers at {master} ({'; '.join(troubles)}); start it, or name another"
    )


def _quiet_options() -> dict[str, str]:
    options = {"spark.ui.showConsoleProgress": "false"}
    if not (_conf_folder() / LOG_FILE).exists():
        quiet = Path(__file__).with_name(LOG_FILE).resolve().as_uri()
        options["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={quiet}"
    return options


def _local_options(master: str) -> dict[str, str]:
    options = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.port.maxRetries": "100",  # the page takes the next free port from 4040 on
    }
    if is_one_process(master):
        options.update(protected_options())
    return options


def _submitted_options(given: Mapping[str, str]) -> dict[str, str]:
    """For a JVM that spark-submit has started, if it is to run everything in one process."""
    from pyspark import SparkConf, SparkContext

    context: Any = SparkContext
    context._ensure_initialized()
    conf = SparkConf()
    master = given.get("spark.master") or conf.get("spark.master") or ""
    if not is_one_process(master) or conf.contains(AUTHENTICATE):
        return {}
    return protected_options()


def _local_slots(needed: int) -> int:
    """For the job that starts the session, and for those after it."""
    return max(LOCAL_SLOTS, SLOTS_OF_A_CORE * (os.cpu_count() or 1), needed)


def _size_options() -> dict[str, str]:
    """Slots are threads, not cores: partitions and Spark's own threads go by the latter."""
    cores = str(max(FEWEST_CORES, os.cpu_count() or 1))
    return {"spark.default.parallelism": cores, "spark.rpc.netty.dispatcher.numThreads": cores}


def _build(options: Mapping[str, str], jvm_options: str = "") -> "SparkSession":
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        with java_start(jvm_options), warnings.catch_warnings():
            if REMOTE in options:  # they hold since the start of the server, and cannot be set anew
                warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
            session: SparkSession = builder.getOrCreate()
    except (Py4JError, PySparkException, OSError) as error:
        where = options.get("spark.master", "the configured master")
        raise SessionFailed(f"Spark did not start on {where}: {_reason(error)}") from error
    return _noticed(session)


def _noticed(session: "SparkSession") -> "SparkSession":
    for notify in on_started:
        notify()
    return session


def _reason(error: BaseException) -> str:
    """The line of a Java error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (reasons or lines or [type(error).__name__])[0]


def chosen_master(given: Mapping[str, str], files: Mapping[str, str]) -> str:
    """What the settings, or Spark's own variables and files, name; nothing: none of them does."""
    if master := given.get("spark.master"):
        return master
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for word, following in pairwise([*words, ""]):
        if word == "--master":
            return following
        if word.startswith("--master="):
            return word.partition("=")[2]
    return files.get("spark.master", "") or os.environ.get("MASTER", "")


def spark_defaults() -> dict[str, str]:
    """What spark-defaults.conf says, so that our own defaults do not go over it."""
    try:
        text = (_conf_folder() / "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line[:1] != "#")
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _conf_folder() -> Path:
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return Path(folder)
    spec = find_spec("pyspark")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    return Path(os.environ.get("SPARK_HOME") or package, "conf")


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set what is not set, for the time in which the JVM starts and takes it over."""
    added = {key: value for key, value in values.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)
