"""Opens and removes names in an open folder, never through a symbolic link; and private modes.

A path can change between two uses, an open folder cannot. Law: what is opened, or removed with all
below it, is the entry of that name in that folder, or LinkRefused is raised.
"""

import os
import stat
from contextlib import suppress
from errno import EISDIR, ELOOP, ENOTDIR
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class LinkRefused(OSError):
    """A symbolic link or special file is where a file or folder must be."""


def private_opener(path: str, flags: int) -> int:
    """For ``open``: a new file is accessible to the user alone."""
    return os.open(path, flags, FILE_MODE)


def open_folder_in(folder: int, name: str) -> int:
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (ELOOP, ENOTDIR) and _is_link(folder, name):
            raise LinkRefused(ELOOP, "a symbolic link", name) from error
        raise


def open_file_in(folder: int, name: str, path: str) -> int:
    try:
        # Non-blocking: it may be a pipe.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno == ELOOP:
            raise LinkRefused(ELOOP, "a symbolic link", path) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(EISDIR, "is a directory", path)
        raise LinkRefused(ELOOP, "neither a file nor a folder", path)
    return descriptor


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def remove_tree(folder: int, name: str, keeping: str = "") -> None:
    """Delete a name in an open folder, with all below it; links are deleted, not followed.

    ``keeping`` names a file directly in it that goes last, if all others are gone. Concurrent
    deletions are no error. As much as possible is deleted, then the first OSError is raised.
    """
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except OSError as error:  # a folder: EISDIR or EPERM, depending on the system
        try:
            inner = open_folder_in(folder, name)
        except NotADirectoryError:
            raise error from None
    try:
        empty_folder(inner, keeping)
    finally:
        os.close(inner)
    with suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=folder)


def empty_folder(inner: int, keeping: str = "") -> None:
    """Delete all entries of an open folder, see ``remove_tree``."""
    trouble: OSError | None = None
    with suppress(OSError):  # an archive may contain read-only folders
        os.fchmod(inner, FOLDER_MODE)
    names = os.listdir(inner)
    for entry in sorted(names, key=lambda entry: entry == keeping):
        if entry == keeping and trouble is not None:
            break
        try:
            remove_tree(inner, entry)
        except OSError as error:
            trouble = trouble or error
        except RecursionError:
            trouble = trouble or OSError(ELOOP, "folders in folders, too deep", entry)
    if trouble is not None:
        raise trouble
