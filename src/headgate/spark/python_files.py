"""The user's own modules on their way to the workers of a cluster.

Spark sends files and puts zips on the workers' module path, but takes no folders: those are zipped
first. Workers on the driver's own machine find its modules without that (``Contact.python_path``).
"""

import atexit
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.base.errors import PathUnusable
from headgate.host.files.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES: Final = (".zip", ".egg", ".whl", ".jar")


def add_python_files(session: "SparkSession", paths: Iterable[str]) -> None:
    """Give all workers these modules, package folders and zips; what they have already stays."""
    for path in paths:
        found = Path(path)
        if "://" not in path and not found.exists():
            raise PathUnusable(path, "is not there, so the workers cannot get it")
        is_folder = found.is_dir()
        session.sparkContext.addPyFile(zipped(str(found.resolve())) if is_folder else path)


@cache  # Spark refuses another file with the name of one that it has
def zipped(folder: str) -> str:
    """A zip of this folder that is there as long as this process, for executors fetch it late."""
    return zip_folder(Path(folder), Path(scratch_folder()))


def scratch_folder() -> str:
    """A new folder that is gone with this process."""
    scratch = OwnedFolder("scratch")
    atexit.register(scratch.close)
    return str(scratch.path)


def zip_folder(folder: Path, target: Path) -> str:
    """A package with its own folder, another folder with what is in it."""
    is_package = (folder / "__init__.py").exists()
    return shutil.make_archive(
        str(target / folder.name),
        "zip",
        root_dir=folder.parent if is_package else folder,
        base_dir=folder.name if is_package else ".",
    )


def import_root(path: str) -> str:
    """What has to stand on the module path so that the driver, too, can import it."""
    found = Path(path.strip()).resolve()
    if found.suffix in ARCHIVES or (found.is_dir() and not (found / "__init__.py").exists()):
        return str(found)
    return str(found.parent)
