"""Jobs in a session of Spark Connect: the coordinator is in this process, Spark's driver elsewhere.

A Connect session has no SparkContext. It runs barrier stages all the same (``mapInArrow``), tags
and interrupts its operations, and sends files. Slots are read from the plan of a ``range``, which
Spark splits by its cores; how many are busy it does not say. Workers connect to this process, so
it listens on the address from which it reaches the server, unless a setting names another. Law:
what comes back from the server itself is never unpickled here.
"""

import atexit
import logging
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from headgate.base.errors import PathUnusable, PlanInvalid, SessionFailed
from headgate.base.extras import install_command
from headgate.base.redaction import HIDDEN
from headgate.spark.cluster import LOOPBACK, Slots, SparkCluster
from headgate.spark.connect_operations import running_operations
from headgate.spark.executors import DYNAMIC, QueryStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

REMOTE: Final = "spark.remote"
REMOTE_VARIABLE: Final = "SPARK_REMOTE"
TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
ROOTS_VARIABLE: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
_GRPC_ROOTS: Final = ("_cython", "_credentials", "roots.pem")
"""The authorities that gRPC brings along, within its package."""
DEFAULT_PORT: Final = 15002
CONNECT_TIMEOUT_S: Final = 5.0
INTERRUPT_S: Final = 5.0
INSTALL: Final = install_command("connect")
_SPLITS: Final = re.compile(r"\bsplits=(\d+)")
_LOCAL_CORES: Final = re.compile(r"local\[(\d+)")
_PLAN: Final = "EXPLAIN SELECT id FROM range(1)"
_PARALLELISM: Final = ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")
"""If one of them is set, the plan of a range says nothing about cores."""
_own_sessions: "Final[list[SparkSession]]" = []
"""Sessions that were opened here; others are stopped by whoever opened them."""
_OPERATION: Final = re.compile(r"SparkConnect_OperationTag_\S*?_Operation_([0-9a-f-]{36})")


def connect_session() -> "SparkSession | None":
    """The Connect session of this process, if one is open."""
    if (module := sys.modules.get("pyspark.sql.connect.session")) is None:
        return None
    from pyspark.errors import PySparkException

    with suppress(PySparkException, RuntimeError):  # there is none
        session: SparkSession = module.SparkSession.active()
        return session
    return None


def remote_of(settings: Mapping[str, str]) -> str:
    """The address of the Connect server that flags or the environment name; nothing if none."""
    return settings.get(REMOTE) or os.environ.get(REMOTE_VARIABLE, "")


def shown_remote(remote: str) -> str:
    """An address as it may be shown: what follows the host may be a token."""
    return re.sub(r"//[^/;]*@", "//", remote.partition(";")[0]).rstrip("/")


def check_packages() -> None:
    """Refuse a PySpark that lacks what Connect needs; raises SessionFailed."""
    try:
        import pyspark.sql.connect.session  # noqa: F401
    except ImportError as error:
        lines = str(error).strip().splitlines() or ["a package is missing"]
        raise SessionFailed(f"Spark Connect cannot be used: {lines[0]}; run {INSTALL}") from error


def open_connect(remote: str, settings: Mapping[str, str]) -> "SparkSession":
    """A new session of the server at this address; raises SessionFailed."""
    check_packages()
    _check_server(remote)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    place = shown_remote(remote)
    builder: Any = SparkSession.builder.remote(remote)
    for key, text in settings.items():
        if key.startswith("spark.") and key not in (REMOTE, "spark.master"):
            builder = builder.config(key, text)
    try:
        session: SparkSession = builder.getOrCreate()
        found = str(session.version)
    except (PySparkException, OSError) as error:
        _forget_session()
        text = _without_secrets(remote, str(error))
        problem = _refusal(text.strip() or type(error).__name__)
        # A traceback shows the cause in full, and PySpark repeats parts of an address.
        cause = error if text == str(error) else None
        raise SessionFailed(f"the Spark Connect server at {place} {problem}") from cause
    if found.startswith(("1.", "2.", "3.")):
        session.stop()
        raise SessionFailed(
            f"the Spark Connect server at {place} runs Spark {found}; 4.0 is needed"
        )
    _own_sessions.append(session)
    return session


def _release_sessions() -> None:
    """The server would keep them, with their files and tables, for an hour after the exit."""
    for session in _own_sessions:
        cluster = ConnectCluster(session)
        if cluster.is_stopped() or cluster.absence():
            continue
        thread = threading.Thread(target=session.stop, name="headgate-release", daemon=True)
        with suppress(RuntimeError):  # too late for threads, and for sessions
            thread.start()
            thread.join(INTERRUPT_S)


atexit.register(_release_sessions)  # before jobs are to end, so that it comes after them


def operation_of(tags: str | None) -> str:
    """The id of the Connect operation that a task runs for; nothing: it runs for none."""
    found = _OPERATION.search(tags or "")
    return found[1] if found else ""


class ConnectCluster(SparkCluster):
    """The cluster of a session of Spark Connect."""

    def __init__(self, session: "SparkSession") -> None:
        self._session: Any = session

    @property
    def master(self) -> str:
        return str(self._session.conf.get("spark.master", "") or "")

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local") and self.is_driven_here

    @property
    def is_own(self) -> bool:
        """The server of ``remote("local[4]")`` is a child of this process."""
        return "SPARK_LOCAL_REMOTE" in os.environ

    @property
    def is_driven_here(self) -> bool:
        """As far as addresses tell: a tunnel ends here, too, but its server has another one."""
        return self.is_own or (_is_own(self._session.client.host) and _is_own(self._driver_host()))

    @property
    def application_id(self) -> str:
        return str(self._session.session_id)

    @property
    def default_parallelism(self) -> int:
        plan = self._session.sql(_PLAN).collect()[0][0]
        found = _SPLITS.search(str(plan))
        if found is not None:
            return int(found[1])
        from pyspark.sql import functions

        # A server whose plans read differently: count the partitions themselves.
        number = functions.max(functions.spark_partition_id()) + 1
        return int(self._session.range(100_000).select(number).collect()[0][0])

    @property
    def is_dynamic(self) -> bool:
        conf = self.configuration()
        return not self.is_local and conf.get(DYNAMIC, "false").lower() == "true"

    @property
    def open_channel(self) -> str:
        builder = getattr(self._session.client, "_builder", None)
        if self._host_is_loopback() or getattr(builder, "secure", True):
            return ""
        return f"sc://{self._session.client.host}"

    def configuration(self) -> Mapping[str, str]:
        return dict(self._session.conf.getAll)

    def is_stopped(self) -> bool:
        return bool(self._session.is_stopped)

    def absence(self) -> str:
        if self._answers():
            return ""
        return f"the Spark Connect server at {self._session.client.host} does not answer"

    def give_up(self) -> None:
        """PySpark would ask a server that is gone for ten minutes, and again at the exit.

        A server that is started again does not know the session.
        """
        if not self.is_stopped() and (problem := self.absence()):
            self._session.client.given_up_by_headgate = problem
            thread = threading.Thread(target=self._close, name="headgate-close", daemon=True)
            thread.start()
            thread.join(INTERRUPT_S)

    def allocate(self, count: int, is_over: Callable[[], bool] = lambda: False) -> None:
        raise SessionFailed(
            f"the Spark Connect server has {DYNAMIC}=true, and lets no barrier stage run; start it "
            f"with --conf {DYNAMIC}=false, and with as many executors as jobs need"
        )

    def adopted_profile(self, profile: object) -> object | None:
        raise PlanInvalid(
            "a session of Spark Connect runs no job with a resource profile; use a classic "
            "session, or give all tasks their resources with spark.task.resource.* on the server"
        )

    def slots(self, profile: object | None = None) -> Slots:
        """No slot counts as busy: Connect does not say what other sessions of the server run.

        A server that is gone would cost PySpark ten minutes of retries.
        """
        self._check_presence()
        conf = self.configuration()
        cpus = int(conf.get("spark.task.cpus", "1"))
        return Slots(self._cores(conf) // cpus, 0, tells_busy=False)

    def query_stages(self) -> list[QueryStage]:
        """Operations of this session; Connect does not tell their stages."""
        operations = running_operations(self._session.client)
        return [QueryStage(name, f":{name}", 0, count) for name, count in operations.items()]

    def driver_hosts(self) -> tuple[str, str]:
        """Loopback for workers of this machine, else the address that leads to the server."""
        if self.is_local:
            return LOOPBACK, LOOPBACK
        place = self._driver_host() if self.is_driven_here else self._session.client.host
        own = _own_address(place)
        return own, own

    def thread(
        self, target: Callable[..., None], name: str, args: tuple[Any, ...] = ()
    ) -> threading.Thread:
        tags = self._session.getTags()

        def run() -> None:
            for tag in tags:
                self._session.addTag(tag)
            target(*args)

        return threading.Thread(target=run, name=name)

    def begin_group(self, group: str, description: str) -> None:
        """Connect describes its jobs itself, by their plans."""
        self._session.addTag(group)

    def cancel_group(self, group: str) -> None:
        """Waits a moment only, for the server may be gone before it answers."""
        self._check_presence()
        thread = threading.Thread(
            target=self._interrupt, name="headgate-interrupt", args=(group,), daemon=True
        )
        thread.start()
        thread.join(INTERRUPT_S)

    def cancel_stage(self, stage: str, reason: str) -> None:
        """Interrupt the operation of the stage; on a thread, for the server may not answer.

        Only where PySpark tells an operation's errors from those of others (since 4.3). Elsewhere
        Spark repeats the stage before it gives up.
        """
        operation = stage.partition(":")[2]
        if operation and knows_operations():
            threading.Thread(
                target=self._interrupt, name="headgate-interrupt", args=("", operation), daemon=True
            ).start()

    def run_barrier(
        self,
        function: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        name: str,
        profile: object | None = None,
    ) -> list[Any]:
        import json

        rows = self._session.range(0, count, 1, count)
        stage = rows.mapInArrow(_barrier_function(function), "item string", barrier=True)
        return [json.loads(row[0]) for row in stage.collect()]

    def add_file(self, path: str) -> None:
        self._add(path, file=True)

    def add_python_file(self, path: str) -> None:
        self._add(path, pyfile=True)

    def _add(self, path: str, **kind: bool) -> None:
        from pyspark.errors import PySparkException

        if "://" in path:
            raise PathUnusable(path, "is a URI, and Spark Connect sends files of this machine only")
        try:
            self._session.addArtifacts(str(Path(path).resolve()), **kind)
        except (PySparkException, OSError, RuntimeError, ValueError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise PathUnusable(
                path,
                f"cannot be sent to the Spark Connect server: {lines[0]}; a file that was changed "
                f"since it was sent needs another name, or a new session",
            ) from error

    def _cores(self, conf: Mapping[str, str]) -> int:
        if not any(key in conf for key in _PARALLELISM):
            return self.default_parallelism
        if found := _LOCAL_CORES.match(conf.get("spark.master", "")):
            return int(found[1])
        instances, cores = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
        if instances and cores:
            return int(instances) * int(cores)
        return self.default_parallelism

    def _host_is_loopback(self) -> bool:
        return _own_address(str(self._session.client.host)).startswith("127.")

    def _driver_host(self) -> str:
        return str(self._session.conf.get("spark.driver.host", "") or LOOPBACK)

    def _answers(self) -> bool:
        port = getattr(getattr(self._session.client, "_builder", None), "_port", None)
        if not isinstance(port, int):  # a channel of the user's own making
            return True
        try:
            socket.create_connection((self._session.client.host, port), CONNECT_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _check_presence(self) -> None:
        if problem := self.absence():
            raise SessionFailed(problem)

    def _close(self) -> None:
        try:
            self._session.client.close()
        except Exception as error:
            log.info("the channel to the Spark Connect server could not be closed: %s", error)

    def _interrupt(self, tag: str, operation: str = "") -> None:
        try:
            if operation:
                self._session.interruptOperation(operation)
            else:
                self._session.interruptTag(tag)
        except Exception as error:
            log.info("%s could not be ended: %s", operation or tag, error)


def knows_operations() -> bool:
    """Whether this PySpark tells which operation of Connect an error belongs to."""
    import inspect

    from pyspark.sql.connect.client.core import SparkConnectClient

    return "operation_id" in inspect.signature(SparkConnectClient._handle_error).parameters


def _barrier_function(
    function: Callable[[Iterable[Any]], Iterator[Any]],
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Nested, so that it travels by value: a worker without Headgate can then say so."""

    def headgate(batches: Iterable[Any]) -> Iterator[Any]:
        import json

        import pyarrow as pa

        for _ in batches:  # with input left, Spark's worker would take rows for commands
            pass
        for item in function(iter(())):
            yield pa.RecordBatch.from_pydict({"item": [json.dumps(item)]})

    return headgate


def _forget_session() -> None:
    """PySpark has made it before it asked the server, and would give it to the next caller."""
    if (session := connect_session()) is not None:
        with suppress(Exception):  # the server, too, knows no such session
            session.stop()


def _without_secrets(remote: str, text: str) -> str:
    """Another's words about an address, without the parameters of the address."""
    parts = [part for part in remote.partition(";")[2].split(";") if part]
    values = [part.partition("=")[2] for part in parts if not part.startswith("use_ssl")]
    for secret in sorted({*parts, *values, *map(unquote, values)} - {""}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _refusal(problem: str) -> str:
    if "UNAUTHENTICATED" in problem or "authentication token" in problem.lower():
        return (
            f"does not accept the token, or wants one; put ;token=… into {REMOTE_VARIABLE}, or set "
            f"{TOKEN_VARIABLE}"
        )
    return f"refuses: {problem.splitlines()[0]}"


def _check_server(remote: str) -> None:
    """A server that is not there costs PySpark minutes of retries; ask first."""
    host, port = None, DEFAULT_PORT
    with suppress(ValueError):
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    if not host or not remote.startswith("sc://"):
        raise SessionFailed(
            f"{shown_remote(remote)!r} is no address of a Spark Connect server; write sc://host:port"
        )
    try:
        sock = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
    except OSError as error:
        raise SessionFailed(
            f"no Spark Connect server answers at {shown_remote(remote)} ({error}); start it, or "
            f"name another"
        ) from error
    with sock:
        if _wants_tls(remote, host):
            _check_tls(sock, host, shown_remote(remote))


def _wants_tls(remote: str, host: str) -> bool:
    """As PySpark has it: a token goes without TLS to ``localhost`` only."""
    parts = dict(part.partition("=")[::2] for part in remote.split(";")[1:])
    if parts.get("use_ssl", "").lower() == "true":
        return True
    return host != "localhost" and ("token" in parts or TOKEN_VARIABLE in os.environ)


def _check_tls(sock: socket.socket, host: str, place: str) -> None:
    """Without it, or with a certificate that gRPC does not trust, PySpark would try for minutes."""
    spec = find_spec("grpc")
    own = [
        Path(folder, *_GRPC_ROOTS) for folder in (spec and spec.submodule_search_locations) or ()
    ]
    roots = [os.environ.get(ROOTS_VARIABLE, ""), *map(str, own)]
    found = next((root for root in roots if os.path.isfile(root)), None)
    context = ssl.create_default_context(cafile=found)
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_socket(sock, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        raise SessionFailed(
            f"the certificate of {place} is not trusted ({error.verify_message}); put its "
            f"authority into a file that {ROOTS_VARIABLE} names, or name the host as it does"
        ) from error
    except OSError as error:
        raise SessionFailed(
            f"{place} speaks no TLS, which ;use_ssl=true asks for, and a token too ({error}); "
            f"Spark's own server speaks none: name a proxy that does, or a server of this machine "
            f"as localhost"
        ) from error


def _own_address(host: str) -> str:
    """The address of this machine from which a host is reached; nothing is sent."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host, DEFAULT_PORT, socket.AF_INET, socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as sock:
            sock.connect(place)
            return str(sock.getsockname()[0])
    except OSError as error:
        raise SessionFailed(
            f"no way from here to {host}, to which the workers would connect back ({error}); set "
            f"jobmanager.rpc.address to an address of this machine that they can reach"
        ) from error


def _is_own(host: str) -> bool:
    """Whether an address is one of this machine: only then can a socket be bound to it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((socket.gethostbyname(host), 0))
    except OSError:
        return False
    return True
