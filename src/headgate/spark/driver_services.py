"""What the driver offers to all jobs of its process: ports, and reservations of slots.

At one port task managers register, at the other sinks deliver their records. Both are opened with
the first job of the process and stay until it ends. On a local master they listen on the loopback
address only, on a cluster where Spark's own driver does. Law: the jobs that hold a reservation fit
into Spark together. A job that does not fit is refused at once if jobs of this driver hold the
slots; for tasks that are merely ending it waits a while.
"""

import atexit
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from headgate.base.errors import SettingsInvalid, SlotsShort
from headgate.base.settings import MAX_PORT, ExchangeSettings, JobSettings
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.results import ResultServer
from headgate.host.files.owned_folder import sweep
from headgate.host.net.transport import Tls
from headgate.observe.web.server import close_page_server
from headgate.spark.cluster import cluster_of
from headgate.spark.executors import task_cores
from headgate.spark.slot_watch import shortage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

ENDING_S: Final = 20.0
"""How long tasks of a job that has just ended may still count as busy; Spark is slow to cancel them
on a machine that is."""
LOG_S: Final = 2.0
"""A job that waits for them longer than this logs a warning."""


class SlotReservations:
    """Slots of a driver's jobs, also of those about to start. Methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reserved: dict[str, int] = {}

    def reserve(
        self,
        session: "SparkSession",
        job: str,
        needed: int,
        profile: object | None = None,
        *,
        shared: int = 1,
    ) -> None:
        """Reserve slots for a job; raises SlotsShort. ``shared``: how many subtasks share a slot.

        One with resources of its own gets them when Spark has them: only Spark knows what others
        leave of them.
        """
        cluster = cluster_of(session)
        if profile is not None:
            usual = int(cluster.configuration().get("spark.task.cpus", "1"))
            with self._lock:
                self._reserved[job] = -(-needed * (task_cores(profile) or usual) // usual)
            return
        began, is_logged = time.monotonic(), False
        while True:
            with self._lock:
                found = cluster.slots()
                reserved = sum(self._reserved.values())
                busy = max(found.busy, reserved)
                if found.total - busy >= needed:
                    self._reserved[job] = needed
                    return
            waited_s = time.monotonic() - began
            if found.total - reserved < needed or waited_s > ENDING_S:
                excluded = [str(executor) for executor in found.excluded]
                raise SlotsShort(needed, found.total, busy, excluded, shared)
            if waited_s > LOG_S and not is_logged:
                is_logged = True
                log.warning("the job is %s", shortage(needed, found))
            time.sleep(0.05)

    def release(self, job: str) -> None:
        """The job has ended. Idempotent."""
        with self._lock:
            self._reserved.pop(job, None)


class DriverServices:
    """Both ports of this process, and the reservations of slots."""

    def __init__(
        self,
        bind_host: str,
        advertised_host: str,
        settings: JobSettings,
        exchange: ExchangeSettings | None = None,
        slots: SlotReservations | None = None,
    ) -> None:
        """``exchange`` says whether both ports have TLS."""
        control, results = settings.control_port, settings.results_port
        tls = Tls(exchange) if exchange is not None and exchange.tls_enabled else None
        with ExitStack() as undo, _port_of("jobmanager.rpc.port", bind_host, control):
            self.control = ControlServer(
                bind_host, control, advertised_host=advertised_host, tls=tls
            )
            undo.callback(self.control.close)
            with _port_of("jobmanager.results.port", bind_host, results):
                self.results = ResultServer(
                    bind_host, results, advertised_host=advertised_host, settings=exchange
                )
            undo.pop_all()
        self.slots = slots or SlotReservations()

    def close(self) -> None:
        self.control.close()
        self.results.close()


_Hosts: TypeAlias = tuple[str, str]
_TlsFiles: TypeAlias = tuple[str, str, str] | None

_services: dict[tuple[_Hosts, _TlsFiles], DriverServices] = {}
_reservations: dict[_Hosts, SlotReservations] = {}
_lock = threading.Lock()


def driver_services(
    session: "SparkSession",
    settings: JobSettings | None = None,
    exchange: ExchangeSettings | None = None,
) -> DriverServices:
    """The services that the workers of a session can reach; the first caller's settings count.

    Jobs with TLS have ports of their own, at which nothing else is spoken.
    """
    settings = settings or JobSettings()
    hosts, files = _hosts(session, settings), _tls_files(exchange)
    with _lock:
        if (hosts, files) not in _services:
            sweep()  # what killed drivers and workers have left on this machine
            reservations = _reservations.setdefault(hosts, SlotReservations())
            services = DriverServices(*hosts, settings, exchange, reservations)
            _services[hosts, files] = services
        return _services[hosts, files]


def _hosts(session: "SparkSession", settings: JobSettings) -> _Hosts:
    """Where to listen, and the address that workers are told; settings go first."""
    address, bind = settings.driver_address, settings.driver_bind_host
    if address and bind:
        return _resolved("jobmanager.bind-host", bind), _resolved("jobmanager.rpc.address", address)
    usual_bind, usual = cluster_of(session).driver_hosts()
    advertised = _resolved("jobmanager.rpc.address", address) if address else usual
    return _resolved("jobmanager.bind-host", bind) if bind else usual_bind, advertised


def _resolved(key: str, host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise SettingsInvalid(key, f"{host} is no address that is known here ({error})") from error


def _tls_files(exchange: ExchangeSettings | None) -> _TlsFiles:
    if exchange is None or not exchange.tls_enabled:
        return None
    return exchange.tls_certificate, exchange.tls_key, exchange.tls_authority


def close_driver_services() -> None:
    """Close all ports, that of the web page too; the next job opens new ones."""
    close_page_server()
    with _lock:
        services = list(_services.values())
        _services.clear()
    for service in services:
        service.close()


atexit.register(close_driver_services)


@contextmanager
def _port_of(key: str, host: str, port: int) -> Iterator[None]:
    if port > MAX_PORT:
        raise SettingsInvalid(key, f"{port} is above {MAX_PORT}")
    try:
        yield
    except OSError as error:
        problem = f"port {port} of {host} cannot be opened ({error}); choose another, or 0"
        raise SettingsInvalid(key, problem) from error
