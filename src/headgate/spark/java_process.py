"""The JVM of an embedded session on its way up: it gets no signal of ours, and is not left behind.

PySpark starts it with SIGINT ignored. Here SIGTERM is ignored as well: systemd and ``kill -- -PID``
send it to every process of a service, and the driver wants to end its jobs in order, which it
cannot do with a Spark that is stopping. The JVM ends when the driver does, because its standard
input ends. Law: if anything interrupts the driver before the JVM answers, the JVM is killed.

Py4J writes the tracebacks of what it raises to the root logger as well; they are left out.
"""

import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from headgate.observe.logs import is_not_py4j

KILLED_S: Final = 10.0


@contextmanager
def starting_java() -> Iterator[None]:
    """PySpark may start a JVM within."""
    import pyspark.java_gateway
    from pyspark import SparkContext

    module: Any = pyspark.java_gateway
    logging.getLogger().addFilter(is_not_py4j)  # a filter counts once, however often it is added
    launcher = _Launcher()
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


class _Launcher:
    """Starts the process on a thread: a signal on the main thread cannot come in between."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def start(self, command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Stands for ``Popen``."""
        options["preexec_fn"] = _deafen

        def launch() -> None:
            try:
                self._process = subprocess.Popen(command, **options)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=launch, name="headgate-java", daemon=True)
        self._thread.start()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """Whatever was started, or is being started."""
        if self._thread is not None:
            self._thread.join(KILLED_S)
        if self._process is not None:
            self._process.kill()
            self._process.wait(KILLED_S)


def _deafen() -> None:
    """Runs in the child: ignored signals stay ignored in what it executes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
