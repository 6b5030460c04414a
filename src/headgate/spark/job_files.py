"""Files that travel with a job to its workers: the user's modules, archives, files, packages.

Spark puts Python files and zips on the workers' module path, but takes no folders: those are zipped
first. Workers on the driver's own machine find its modules without that (``python_path`` of the
contact). Each other file is named after its content, so that a changed one is another. A worker
unpacks these into a new folder, which is the working directory as long as the job runs there, as
in PyFlink. Law: however the job ends, the folder is removed and the old directory is back. A job
without such files stays where it is.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.api.draft import JobFile
from headgate.api.program import Program
from headgate.base.errors import PathUnusable
from headgate.host.files.owned_folder import OwnedFolder, process_folder
from headgate.spark.cluster import cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES: Final = (".zip", ".egg", ".whl", ".jar")

ZIPS: Final = (".zip", ".jar", ".whl", ".egg")
TARS: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PACKAGES: Final = ".packages"
"""The folder of the packages that a requirements file names."""
_PIP_CHARS: Final = 1000


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file that Spark has for all workers."""

    file: str
    """Its name among Spark's files."""
    name: str
    """What it becomes in the working directory."""
    unpack: bool = False
    executable: bool = False


@dataclass(frozen=True, slots=True)
class JobFiles:
    """All that travels with a job."""

    files: tuple[PackedFile, ...] = ()

    @contextmanager
    def unpacked(self) -> Iterator[None]:
        """In a worker: the working directory is a folder with everything in it."""
        if not self.files:
            yield
            return
        from pyspark import SparkFiles

        back, path = os.getcwd(), list(sys.path)
        owned = OwnedFolder("files")
        folder = owned.path / "work"
        try:
            folder.mkdir()
            for file in self.files:
                _unpack(Path(SparkFiles.get(file.file)), Path(folder, file.name), file)
            os.chdir(folder)
            # What workers have already comes first: parts of it may be loaded.
            sys.path.append(str(Path(folder, PACKAGES)))
            yield
        finally:
            os.chdir(back)
            sys.path[:] = path
            owned.close()


def pack(session: "SparkSession", program: Program) -> JobFiles:
    """In the driver: hand everything to Spark; raises PathUnusable."""
    files = [_packed(session, job_file) for job_file in program.job_files]
    if program.requirements is not None:
        archive = _installed(*_described(*program.requirements))
        files.append(_packed(session, JobFile(archive, PACKAGES, unpack=True)))
    return JobFiles(tuple(files))


def _packed(session: "SparkSession", job_file: JobFile) -> PackedFile:
    path, unpack = job_file.path, job_file.unpack
    if unpack and not path.endswith((*ZIPS, *TARS)):
        raise PathUnusable(path, f"is no archive; give one that ends in {', '.join(ZIPS + TARS)}")
    if "://" not in path:
        found = Path(path)
        if not found.exists():
            raise PathUnusable(path, "is not there, so the workers cannot get it")
        if found.is_dir():  # Spark takes no folders
            target = os.path.join(process_folder("scratch"), "folder")
            found, unpack = Path(shutil.make_archive(target, "zip", found)), True
        path = _named_by_content(str(found.resolve()))
    cluster_of(session).add_file(path)
    return PackedFile(path.rpartition("/")[2], job_file.name, unpack, job_file.executable)


def _named_by_content(path: str) -> str:
    """A copy that is there as long as this process, for executors fetch it late."""
    digest = hashlib.blake2b(digest_size=12)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return _copied(path, f"{digest.hexdigest()}-{Path(path).name}")


@cache
def _copied(path: str, name: str) -> str:
    return shutil.copy(path, os.path.join(process_folder("scratch"), name))


def _described(requirements: str, folder: str | None) -> tuple[str, str, str | None]:
    """The text beside the path: a file that was changed is installed anew."""
    try:
        text = Path(requirements).read_text(encoding="utf-8")
    except OSError as error:
        raise PathUnusable(requirements, f"cannot be read: {error.strerror}") from error
    if folder is not None and not Path(folder).is_dir():
        raise PathUnusable(folder, "is no folder, so no packages can be taken from it")
    return requirements, text, folder


@cache
def _installed(requirements: str, text: str, folder: str | None) -> str:
    """An archive of the packages that a file names; only those of the folder, if there is one."""
    scratch = process_folder("scratch")
    target = os.path.join(scratch, "packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--target", target, "--requirement", requirements]
    if folder is not None:
        command += ["--no-index", "--find-links", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-_PIP_CHARS:]
        raise PathUnusable(requirements, f"cannot be installed; pip says: {output}")
    os.makedirs(target, exist_ok=True)  # pip makes none for nothing
    return shutil.make_archive(os.path.join(scratch, "packages"), "zip", target)


def _unpack(source: Path, target: Path, file: PackedFile) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not file.unpack:
        shutil.copy(source, target)
        if file.executable:
            target.chmod(target.stat().st_mode | 0o111)
        return
    target.mkdir(exist_ok=True)
    if file.file.endswith(ZIPS):
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist():
                made = archive.extract(entry, target)
                if mode := entry.external_attr >> 16 & 0o777:  # extract() forgets it
                    os.chmod(made, mode | 0o600)
        return
    with tarfile.open(source) as packed:
        if hasattr(tarfile, "tar_filter"):
            packed.extractall(target, filter="tar")
        else:  # an older Python; the archive is the user's own
            packed.extractall(target)


def add_python_files(session: "SparkSession", paths: Iterable[str]) -> None:
    """Give all workers these modules, package folders and zips; what they have already stays."""
    for path in paths:
        found = Path(path)
        if "://" not in path and not found.exists():
            raise PathUnusable(path, "is not there, so the workers cannot get it")
        is_folder = found.is_dir()
        cluster_of(session).add_python_file(zipped(str(found.resolve())) if is_folder else path)


@cache  # Spark refuses another file with the name of one that it has
def zipped(folder: str) -> str:
    """A zip of this folder that is there as long as this process, for executors fetch it late."""
    return zip_folder(Path(folder), Path(process_folder("scratch")))


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
