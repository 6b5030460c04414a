"""Spark's daemon of Python workers, which also records how each of them has ended.

Spark's own lets the kernel forget its children, so that nobody learns whether one was killed, and
each child imports all that it needs. This one, which ``spark.python.daemon.module`` names in local
sessions that Headgate makes, imports that once, before the first fork, and from folders rather than
from Spark's archives of the same modules. Laws: workers see no difference; only an exit other than
a regular one is recorded, in a file for each process in the folder that the environment names;
there is one thread when a worker is forked, for which reason nothing is loaded here that loads
numpy, pandas or pyarrow.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

from headgate.host.worker.exits import EXITS, exits_folder, note_exit

WORKER: Final = "pyspark.worker"
"""The module of Spark's usual workers; others serve one kind of query each."""
PRELOADED: Final = (WORKER, "headgate.spark.worker", "headgate.api.environment")
"""The last one is what a module of the user's imports that holds functions and builds the job."""
ARCHIVES: Final = ("python/lib/*.zip", "jars/spark-core_*.jar")
"""In the folder of PySpark: what Spark puts first on the path of its workers."""


class WatchedSignals:
    """The module ``signal``, for a daemon that wants to ignore the ends of its children."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        """As ``signal.signal``, but the ends of children are noted, whoever ignores them."""
        if number == signal.SIGCHLD and handler is signal.SIG_IGN:
            handler = self._reap
        return signal.signal(number, handler)

    def forked(self) -> None:
        """In a worker: its own children are its own business; it is as Spark's daemon leaves it."""
        if signal.getsignal(signal.SIGCHLD) == self._reap:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def _reap(self, number: int, frame: FrameType | None) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                note_exit(self._folder, pid, os.waitstatus_to_exitcode(status))


def exit_daemon_options() -> dict[str, str]:
    """Spark settings that make a local session use this daemon."""
    if os.name != "posix":
        return {}
    return {
        "spark.python.daemon.module": "headgate.spark.exit_daemon",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),  # it may not be installed
        f"spark.executorEnv.{EXITS}": exits_folder(),
    }


def drop_archives() -> None:
    """Forget Spark's archives of modules that an installed PySpark has in folders, too.

    A module in an archive is compiled by every daemon, and each task of Spark reads the contents of
    all archives again. A Spark that is no installed package keeps its archives.
    """
    dropped = installed_archives(sys.path)
    sys.path[:] = [entry for entry in sys.path if entry not in dropped]
    for known in [*sys.path_importer_cache]:
        if any(known == archive or known.startswith(archive + os.sep) for archive in dropped):
            del sys.path_importer_cache[known]


def installed_archives(path: Sequence[str]) -> set[str]:
    """Archives of a PySpark that is installed in a folder of this path, with its py4j."""
    found: set[str] = set()
    for folder in map(Path, path):
        home = folder / "pyspark"
        if (home / "worker.py").is_file() and (folder / "py4j" / "__init__.py").is_file():
            found.update(str(archive) for part in ARCHIVES for archive in home.glob(part))
    return found


def preload() -> None:
    """Import what every worker of a job needs."""
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # a collection in a worker would copy the pages that it shares with the others


def main() -> None:
    """Run Spark's daemon."""
    drop_archives()
    if WORKER in sys.argv[1:2]:
        preload()
    daemon: Any = import_module("pyspark.daemon")
    if folder := os.environ.get(EXITS):
        watched = daemon.signal = WatchedSignals(folder)
        os.register_at_fork(after_in_child=watched.forked)
    daemon.manager()


if __name__ == "__main__":
    main()
