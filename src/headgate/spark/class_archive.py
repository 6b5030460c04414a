"""An archive of Spark's classes, from which its JVM starts in half the time (class data sharing).

There is one for each Java and Spark, in the user's cache folder. It is made by a process of its
own, with low priority, when the first program without one has ended; ``python -m`` this module
makes it at once. Java itself checks that an archive fits. Laws: without an archive, or with one
that does not fit, a session starts as usual; a JVM runs what stands in the archive, so nothing is
used from a folder that somebody else may write to; an archive appears whole, or not at all.
"""

import atexit
import fcntl
import logging
import os
import shlex
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from headgate.base.errors import SessionFailed
from headgate.host.files.private_files import FILE_MODE, FOLDER_MODE
from headgate.spark.java import SUBMIT_OPTIONS, Java, find_java

log = logging.getLogger(__name__)

SUFFIX: Final = ".jsa"
NEWEST: Final = 17
"""Java 21 takes no archive made with Spark's class path: its first entry is a folder."""
MOST_KEPT: Final = 2
"""Archives, each of about 170 MB: those of the newest Javas and Sparks that were used."""
LEAST_FREE_BYTES: Final = 2 << 30
MAKING_S: Final = 180.0
SCHEMA: Final = "id long, name string"
NICE: Final = 19
AGAIN_S: Final = 24 * 3600.0
FOR_JOBS: Final = ("MASTER", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""Variables that lead to the user's cluster, which has nothing to do with the archive."""
QUIET: Final = "-Xshare:auto -Xlog:cds*=off"
"""Java would list what an archive cannot hold; and say on every start why one does not fit."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one Java and one Spark; it may not exist yet."""

    folder: Path
    java: Java
    spark_home: Path

    @cached_property
    def path(self) -> Path:
        """Named by all that must be the same for the archive to fit."""
        jars = sorted((self.spark_home / "jars").iterdir())
        facts = [str(self.java.home), self.java.version, str(self.spark_home)]
        facts += [f"{jar.name} {(s := jar.stat()).st_size} {s.st_mtime_ns}" for jar in jars]
        name = blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
        return self.folder / f"spark-{name}{SUFFIX}"

    def start_options(self) -> str:
        """For a JVM that is to use it; nothing if there is none."""
        if not _is_own(self.path):
            return ""
        with suppress(OSError):
            os.utime(self.path)  # so that those that nobody uses go first
        return f"-XX:SharedArchiveFile={self.path} {QUIET}"

    def make(self) -> bool:
        """Start a session, let it run what jobs need, keep its classes. False: another one does."""
        with _locked(self.folder / "lock") as is_mine:
            if not is_mine:
                return False
            self._make_room()
            self._tried.touch(FILE_MODE)
            new = self.path.with_suffix(".new")
            _run_session(f"-XX:ArchiveClassesAtExit={new} {QUIET}")
            new.chmod(FILE_MODE)
            new.replace(self.path)
            self._tried.unlink(missing_ok=True)
        return True

    def was_tried(self) -> bool:
        """Whether somebody has begun to make it within a day, and did not come to an end."""
        try:
            return time.time() - self._tried.stat().st_mtime < AGAIN_S
        except FileNotFoundError:
            return False

    @property
    def _tried(self) -> Path:
        return self.path.with_suffix(".tried")

    def _make_room(self) -> None:
        """Remove what was left half made, and archives that were not used for longest."""
        for left in (*self.folder.glob("*.new"), *self.folder.glob("*.tried")):
            left.unlink(missing_ok=True)
        whole = sorted(self.folder.glob(f"*{SUFFIX}"), key=lambda path: -path.stat().st_mtime)
        for path in whole[MOST_KEPT - 1 :]:
            path.unlink(missing_ok=True)
        if shutil.disk_usage(self.folder).free < LEAST_FREE_BYTES:
            raise OSError(f"less than 2 GiB are free at {self.folder}")


def class_archive(java: Java) -> ClassArchive | None:
    """The archive for this Java and the installed Spark; None: there can be none here."""
    if java.major > NEWEST:
        return None
    spec = find_spec("pyspark")
    package = Path(spec.origin).parent if spec and spec.origin else None
    home = Path(os.environ["SPARK_HOME"]) if os.environ.get("SPARK_HOME") else package
    if home is None or not (home / "jars").is_dir():
        return None
    configured = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    if configured.is_dir() and any(configured.iterdir()):
        return None  # it is the first place on the class path, where Java shares no folders
    try:
        return ClassArchive(_cache_folder(), java, home)
    except OSError as error:
        log.debug("no archive of Spark's classes: %s", error)
        return None


@cache
def make_at_exit(archive: ClassArchive) -> None:
    """When this program ends, start a process that makes the archive; it outlives us.

    An archive that could not be made is not tried again on the same day.
    """
    if archive.path.exists() or archive.was_tried():
        return
    command = shlex.join([sys.executable, "-m", __name__])

    def start() -> None:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ["/bin/sh", "-c", f"nice -n {NICE} {command} &"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=archive.folder,  # no module of the user's folder is taken for one of Python's
                start_new_session=True,
                timeout=10,
                check=False,
            )

    atexit.register(start)


def main() -> int:
    """Make the archive of the installed Spark, unless it is there."""
    from headgate.spark.session import spark_version

    java = find_java(spark_version=spark_version() or "").found
    archive = None if java is None else class_archive(java)
    if archive is None:
        print("there can be no archive of Spark's classes here", file=sys.stderr)
        return 0
    if not archive.start_options():
        try:
            archive.make()
        except Exception as error:  # sessions start without it, too
            print(f"the archive of Spark's classes was not made: {error}", file=sys.stderr)
            return 1
    return 0


def _cache_folder() -> Path:
    """Private to this user; raises OSError if it is not."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "headgate" / "java"
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder that only this user may write to")
    return folder


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether nobody else has the lock; the kernel releases it with the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        is_mine = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_mine = False
        yield is_mine
    finally:
        os.close(descriptor)


def without_cluster(environ: Mapping[str, str], jvm_options: str) -> dict[str, str]:
    """Variables for a session of this machine, whatever cluster and options the user's name."""
    own = {key: value for key, value in environ.items() if key not in FOR_JOBS}
    return {**own, SUBMIT_OPTIONS: jvm_options}


def _run_session(jvm_options: str) -> None:
    """A session that runs what most jobs use, to its end; its JVM writes the archive on exit."""
    from pyspark import SparkContext

    from headgate.spark.session import find_session

    own = without_cluster(os.environ, jvm_options)
    os.environ.clear()
    os.environ.update(own)
    watchdog = threading.Timer(MAKING_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    session = find_session({"java.class-archive": "false", "spark.master": "local[4]"})
    frame = session.createDataFrame([(1, "a"), (2, "b")], SCHEMA)
    frame.repartition(2).mapInArrow(lambda batches: batches, SCHEMA, barrier=True).collect()
    frame.groupBy("name").count().orderBy("name").collect()
    session.stop()
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()
    if process.wait(MAKING_S) not in (0, 143):
        raise SessionFailed(f"Spark's JVM ended with {process.returncode}")
    watchdog.cancel()


if __name__ == "__main__":
    sys.exit(main())
