"""Which files the paths of a source lead to: files, folders and patterns.

Folders are read recursively; names that begin with ``.`` or ``_`` are hidden, and folders and
patterns leave them out. A link that leads back up is not followed. Files are sorted within a folder
or pattern, and each comes once. Law: a file that vanishes while its folder is listed is not in the
list; a folder that cannot be listed is an error that names it.
"""

import fnmatch
import glob
import os
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module

from headgate.base.errors import PathUnusable
from headgate.base.redaction import plain_url
from headgate.connectors.files.file_access import (
    FileAccess,
    ListedFile,
    fixed_part,
    is_remote,
    listed,
    local_file,
    printable,
    remote_errors,
)


def list_files(
    paths: Sequence[str], access: FileAccess, may_miss: Collection[str] = ()
) -> list[ListedFile]:
    """All files that the paths lead to; those of ``may_miss`` need not lead to any."""
    found: dict[str, ListedFile] = {}
    for path in paths:
        remote = is_remote(path)
        files = _remote_files(path, access) if remote else _local_files(os.path.abspath(path))
        empty = True
        for file in files:
            empty = False
            found.setdefault(file.path, file)
        if empty and path not in may_miss and not is_folder(path, access):
            raise _missing(path)
    return list(found.values())


def check_local_paths(paths: Sequence[str]) -> None:
    """Refuse paths of this machine that lead nowhere; looks at names only."""
    for path in paths:
        if is_remote(path) or os.path.lexists(path):
            continue
        if not glob.has_magic(path) or not any(glob.iglob(path, recursive=True)):
            raise _missing(path)


def _missing(path: str) -> PathUnusable:
    shown = plain_url(path) if is_remote(path) else printable(os.path.abspath(path))
    return PathUnusable(shown, "does not exist; check the path, also on the driver's machine")


def is_folder(path: str, access: FileAccess) -> bool:
    """Whether a path leads to a folder, which may be empty."""
    if not is_remote(path):
        return os.path.isdir(path)
    if has_pattern(path):
        return False
    root = access.root(path)
    with remote_errors(plain_url(path)):
        return str(root.system.get_file_info(root.path).type) == "FileType.Directory"


def has_pattern(path: str) -> bool:
    """Whether a path names several files."""
    return fixed_part(path.partition("?")[0]) != path.partition("?")[0] or (
        not is_remote(path) and glob.has_magic(path)
    )


# On this machine.


def _local_files(path: str) -> Iterator[ListedFile]:
    if os.path.isdir(path):
        yield from _files_below(path, ())
    elif (file := local_file(path)) is not None:
        yield file
    elif os.path.exists(path):
        raise PathUnusable(
            printable(path), "is neither a file nor a folder; read pipes with a SourceFunction"
        )
    elif glob.has_magic(path):
        for match in sorted(glob.glob(path, recursive=True)):
            if not _hidden(match):
                yield from _local_files(match)


def _files_below(folder: str, above: tuple[str, ...]) -> Iterator[ListedFile]:
    real = os.path.realpath(folder)
    if real in above:  # a link that leads back up
        return
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        if above and isinstance(error, FileNotFoundError):
            return
        raise PathUnusable(printable(folder), f"cannot be listed: {error.strerror}") from error
    for name in names:
        path = os.path.join(folder, name)
        if _hidden(path):
            continue
        if os.path.isdir(path):
            yield from _files_below(path, (*above, real))
        elif (file := local_file(path)) is not None:
            yield file


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


# On a file system of pyarrow.


def _remote_files(uri: str, access: FileAccess) -> Iterator[ListedFile]:
    root = access.root(uri)
    plain = uri.partition("?")[0]
    pattern = plain.removeprefix(fixed_part(plain)).strip("/")
    parts = pattern.split("/") if pattern else []
    with remote_errors(plain_url(uri)):
        info = root.system.get_file_info(root.path)
        if info.is_file:
            yield listed(root, info)
            return
        selector = import_module("pyarrow.fs").FileSelector
        chosen = selector(root.path, allow_not_found=True, recursive=True)
        found = root.system.get_file_info(chosen)
    for entry in sorted(found, key=lambda entry: entry.path):
        names = entry.path.removeprefix(root.path).strip("/").split("/")
        if entry.is_file and not any(map(_hidden, names)) and _matches(names, parts):
            yield listed(root, entry)


def _matches(names: list[str], pattern: list[str]) -> bool:
    """As ``glob`` matches: ``*`` does not cross folders, ``**`` does; all below a match counts."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return _matches(names, pattern[1:]) or (bool(names) and _matches(names[1:], pattern))
    if not names or not fnmatch.fnmatchcase(names[0], pattern[0]):
        return False
    return _matches(names[1:], pattern[1:])
