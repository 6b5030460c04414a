"""``headgate doctor``: does everything that a job needs work here? If not, how to mend it.

One line for each check: ok, warn or bad, what was found, and what to do. It starts a real Spark
session and runs a barrier job in it, unless told not to. Exit code 0: nothing is bad, 3: no Spark
or no slots, 2: something else.
"""

import json
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

import click

from headgate import __version__
from headgate.base.errors import SessionFailed, SparkUnready
from headgate.base.extras import install_command
from headgate.base.settings import GIB, MIB
from headgate.cli.entry import CONFIGURATION, NO_SPARK
from headgate.cli.jobs import JSON
from headgate.cli.run import DEFINE, flags_of, session_flags
from headgate.spark.configuration import given_settings
from headgate.spark.connect import INSTALL as INSTALL_CONNECT
from headgate.spark.connect import check_packages as check_connect_packages
from headgate.spark.connect import remote_of
from headgate.spark.java import find_java
from headgate.spark.probe import SparkReport, WorkerReport, probe_spark
from headgate.spark.session import is_known, spark_version

OK, WARN, BAD = "ok", "warn", "bad"
LEAST_MEMORY: Final = GIB
LEAST_DISK: Final = 256 * MIB
INSTALL_SPARK: Final = install_command("spark")
INSTALL_ROCKSDB: Final = install_command("rocksdb")
_COLOURS = {OK: "green", WARN: "yellow", BAD: "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `exit_code` counts only if the state is bad."""

    check: str
    state: str
    found: str
    mend: str = ""
    exit_code: int = CONFIGURATION


@click.command()
@JSON
@click.option("--master", help="The Spark master to try, such as spark://host:7077.")
@click.option("--remote", help="The Spark Connect server to try, such as sc://host:15002.")
@DEFINE
@click.option("--no-spark", is_flag=True, help="Do not start a Spark session.")
def doctor(
    as_json: bool, master: str | None, remote: str | None, defines: tuple[str, ...], no_spark: bool
) -> int:
    """Look whether this machine, and Spark, have what a job needs."""
    findings: list[Finding] = []
    flags = {**given_settings(), **flags_of(defines), **session_flags(master, remote)}
    for finding in examine(flags, with_session=not no_spark):
        findings.append(finding)
        if not as_json:
            click.echo(line(finding))
    code = exit_code(findings)
    if as_json:
        listed = [asdict(finding) for finding in findings]
        click.echo(json.dumps({"headgate": __version__, "exit_code": code, "findings": listed}))
    return code


def examine(flags: dict[str, str], *, with_session: bool) -> Iterator[Finding]:
    """Every check, the quick ones first; ``flags`` name the session."""
    remote = remote_of(flags)
    yield check_python(sys.version_info[:2])
    yield from check_packages()
    yield check_pyspark(spark_version())
    yield check_pandas()
    yield check_rocksdb()
    if remote:
        yield check_connect()
    if not remote or remote.startswith("local"):  # a server elsewhere has a Java of its own
        yield check_java()
    yield check_loopback()
    yield check_memory(available_bytes())
    yield check_folder(Path(tempfile.gettempdir()))
    if with_session and spark_version():
        yield from check_spark(lambda: probe_spark(flags))


def line(finding: Finding) -> str:
    """A finding as a person reads it."""
    state = click.style(f"{finding.state:<5}", fg=_COLOURS[finding.state])
    text = f"{state} {finding.check:<16} {finding.found}"
    return f"{text}\n{'':<22} {finding.mend}" if finding.mend else text


def exit_code(findings: list[Finding]) -> int:
    """The worst of what is bad: no Spark before anything else."""
    return max((finding.exit_code for finding in findings if finding.state == BAD), default=0)


def check_python(found: tuple[int, ...]) -> Finding:
    text = f"{platform.python_version()} ({sys.executable})"
    if (3, 10) <= found < (3, 14):
        return Finding("Python", OK, text)
    return Finding("Python", WARN, text, "Headgate is tested with Python 3.10 to 3.13")


def check_packages() -> Iterator[Finding]:
    """What the package itself says it needs, extras left out."""
    yield Finding("headgate", OK, __version__)
    try:
        needs = requires("headgate") or []
    except PackageNotFoundError:
        yield Finding("packages", WARN, "headgate is not installed but on the path only")
        return
    for need in needs:
        if matched := re.fullmatch(r"([\w-]+)>=([\d.]+)", need):
            yield check_package(matched[1], matched[2])


def check_package(name: str, least: str) -> Finding:
    mend = f"pip install '{name}>={least}'"
    found = installed(name)
    if found is None:
        return Finding(name, BAD, "not installed", mend)
    state = OK if _numbers(found) >= _numbers(least) else BAD
    return Finding(name, state, found, "" if state == OK else mend)


def installed(name: str) -> str | None:
    """The version of a package; None: it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_pyspark(found: str | None) -> Finding:
    if found is None:
        return Finding("pyspark", BAD, "not installed", INSTALL_SPARK, NO_SPARK)
    if is_known(found):
        return Finding("pyspark", OK, found)
    if _numbers(found) < (4,):
        return Finding("pyspark", BAD, f"{found} is too old", INSTALL_SPARK, NO_SPARK)
    return Finding("pyspark", WARN, found, "Headgate is tested with PySpark 4.0 to 4.3")


def check_pandas() -> Finding:
    found = installed("pandas")
    if found is None:
        return Finding("pandas", OK, "not installed; only DataFrame.toPandas() needs it")
    if _numbers(found) < (3,):
        return Finding("pandas", OK, found)
    return Finding("pandas", WARN, found, "PySpark 4 wants pandas below 3: pip install 'pandas<3'")


def check_rocksdb() -> Finding:
    absent = f"not installed; only state in RocksDB needs it: {INSTALL_ROCKSDB}"
    return Finding("rocksdict", OK, installed("rocksdict") or absent)


def check_java() -> Finding:
    search = find_java(spark_version=spark_version() or "")
    passed = "".join(f"; passed over {rejected}" for rejected in search.rejected)
    if search.found is None:
        mend = f"{INSTALL_SPARK} brings one, or set JAVA_HOME to a Java 17 or 21"
        return Finding("Java", BAD, f"none{passed}", mend, NO_SPARK)
    found = f"{search.found.version} from {search.found.source} ({search.found.home}){passed}"
    bad_home = any(rejected.source == "JAVA_HOME" for rejected in search.rejected)
    mend = "JAVA_HOME is of no use to Spark: change or unset it" if bad_home else ""
    return Finding("Java", WARN if bad_home else OK, found, mend)


def check_connect() -> Finding:
    try:
        check_connect_packages()
    except SessionFailed as error:
        mend = f"{INSTALL_CONNECT} adds what is missing"
        return Finding("Spark Connect", BAD, str(error), mend, NO_SPARK)
    return Finding("Spark Connect", OK, "its packages are installed")


def check_loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError as error:
        mend = "let this user listen on and connect to 127.0.0.1 (sandbox, firewall)"
        return Finding("loopback", BAD, str(error), mend)
    return Finding("loopback", OK, f"listened on and reached 127.0.0.1:{port}")


def check_memory(available: int | None) -> Finding:
    if available is None:
        return Finding("memory", OK, "not known here")
    found = f"{available / GIB:.1f} GiB available"
    if available >= LEAST_MEMORY:
        return Finding("memory", OK, found)
    return Finding("memory", WARN, found, "Spark alone takes about 1 GiB; end something else first")


def check_folder(folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="headgate-") as file:
            file.write(b"x")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        mend = "set TMPDIR to a folder that this user may write to"
        return Finding("temporary folder", BAD, str(error), mend)
    found = f"{folder}, {free / GIB:.1f} GiB free"
    if free >= LEAST_DISK:
        return Finding("temporary folder", OK, found)
    return Finding("temporary folder", WARN, found, "make room, or set TMPDIR to another disk")


def check_spark(probe: Callable[[], SparkReport]) -> Iterator[Finding]:
    """A session and its workers."""
    try:
        seen = probe()
    except SparkUnready as error:
        mend = "fix what is bad above, or name a Spark that runs with --master or --remote"
        yield Finding("Spark session", BAD, str(error), mend, NO_SPARK)
        return
    found = f"{seen.version} on {seen.master}, ready after {seen.start_s} s"
    yield Finding("Spark session", OK, found)
    if seen.dynamic_allocation:
        mend = (
            "jobs ask for their executors; outputs as DataFrames, and resource profiles, need "
            "spark.dynamicAllocation.enabled=false"
        )
        yield Finding("allocation", WARN, "dynamic", mend)
    if not seen.slots.free:
        found = f"{seen.slots.total}, of which {seen.slots.busy} are busy"
        yield Finding("slots", BAD, found, "start executors, or end what holds them", NO_SPARK)
        return
    yield Finding("slots", OK, f"{seen.slots.total}, of which {seen.slots.busy} are busy")
    yield check_workers(seen.workers, seen.job_s)


def check_workers(workers: tuple[WorkerReport, ...], job_s: float) -> Finding:
    pythons = sorted({worker.python for worker in workers})
    hosts = len({worker.host for worker in workers})
    found = f"{len(workers)} on {hosts} host(s), Python {', '.join(pythons)}, after {job_s} s"
    troubles = sorted({f"{worker.host} {worker.trouble}" for worker in workers if worker.trouble})
    if troubles:
        mend = (
            "install Headgate on every host, or send it along with headgate run --ship; let tasks "
            "connect to each other"
        )
        return Finding("workers", BAD, f"{found}: {'; '.join(troubles)}", mend, NO_SPARK)
    if any(_numbers(python)[:2] != sys.version_info[:2] for python in pythons):
        mend = "set PYSPARK_PYTHON to a Python with the same first two numbers as this one"
        return Finding("workers", BAD, found, mend)
    if {worker.headgate for worker in workers} != {__version__}:
        return Finding("workers", BAD, found, f"install headgate=={__version__} on every host")
    return Finding("workers", OK, found)


def available_bytes() -> int | None:
    """Memory that can be had without swapping."""
    try:
        meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, flags=re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _numbers(found: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", found)[:3])
