"""Finds the files of a source when a job starts and, if they are followed, while it runs.

Each piece of a followed file ends after a newline, and the next one begins there, whatever the
file is called by then. A file that is renamed (rotated) is known by device and inode and by the
digest of what was read of it; one whose digest differs is another file, and is read from its
beginning. Packed files and formats that cannot be cut at a line are read once, as a whole, when
they are finished. Law: each byte of a file that only grows is in one piece, over all restarts; the
position holds a few words for each file that still exists, or did when its folder was last found
with any.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import PathUnusable
from headgate.base.redaction import plain_url
from headgate.connectors.files.file_access import (
    FileAccess,
    ListedFile,
    fixed_part,
    has_pattern,
    is_folder,
    is_remote,
    list_files,
    printable,
    unpacker,
)
from headgate.connectors.files.splits import (
    FileSplit,
    FileVersion,
    as_known,
    cut,
    digest_of,
    inodes_in,
    same_inode,
)
from headgate.functions.source import Position, SplitEnumerator

if TYPE_CHECKING:
    from headgate.connectors.files.source import FilesSource

log = logging.getLogger(__name__)

MAX_COMPLAINTS: Final = 1000
_BLOCK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that was listed, and how much of it has been handed out."""

    done: int
    size: int
    mtime_ns: int
    inode: tuple[int, int] | None = None
    digest: bytes = b""
    """The digest of what was handed out."""

    @property
    def seen(self) -> tuple[int, int, tuple[int, int] | None]:
        """What would differ if it had been written to."""
        return self.size, self.mtime_ns, self.inode


@dataclass(frozen=True, slots=True)
class FilesPosition:
    """What a checkpoint keeps of an enumerator: as many entries as there are files."""

    files: dict[str, KnownFile]
    folders: frozenset[str] | None
    """Paths that were folders: that one of them vanishes is an error. None: nothing was listed."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Plain values: it is pickled at each look, and a folder may have 100,000 files."""
        rows = [
            (path, file.done, file.size, file.mtime_ns, file.inode, file.digest)
            for path, file in self.files.items()
        ]
        return _position, (rows, self.folders)


def _position(rows: list[Any], folders: frozenset[str] | None) -> FilesPosition:
    return FilesPosition({path: KnownFile(*values) for path, *values in rows}, folders)


class FileEnumerator(SplitEnumerator):
    """Lists, compares and cuts. Lives in the driver."""

    def __init__(self, rules: "FilesSource[Any]", position: Position = None) -> None:
        assert position is None or isinstance(position, FilesPosition), position
        before = FilesPosition({}, None) if position is None else position
        self._rules = rules
        self._access = FileAccess(rules.paths)
        self._known = dict(before.files)
        self._by_inode: dict[tuple[int, int] | None, str] = {}
        """The paths of known files, when they were listed last."""
        self._folders = before.folders
        self._was_listed = position is not None
        self._places = [_place(path) for path in rules.paths]
        self._waiting: dict[str, ListedFile] = {}
        """Files that may not be finished, as they were last time."""
        self._complained: set[str] = set()
        self._is_first = True
        self.interval_ms = rules.discover_ms if rules.follow else None

    def discover(self) -> Sequence[object]:
        self._is_first = self._folders is None
        files = self._list()
        if not self._rules.follow:
            new = [file for file in files if file.path not in self._known]
            for file in new:
                self._known[file.path] = KnownFile(file.size, file.size, file.mtime_ns)
            return [as_known(split) for file in new for split in self._pieces(file, 0, None)]
        self._known, elsewhere = self._locate(files)
        self._by_inode = {known.inode: path for path, known in self._known.items()}
        splits: list[object] = []
        waiting: dict[str, ListedFile] = {}
        for file in [*files, *elsewhere]:
            found = self._new_splits(file)
            if found is None:
                waiting[file.path] = file
            else:
                splits += found
        self._waiting = waiting
        return splits

    def position(self) -> Position:
        return FilesPosition(dict(self._known), self._folders)

    # What is there.

    def _list(self) -> list[ListedFile]:
        paths, access = self._rules.paths, self._access
        if not self._rules.follow:  # what an earlier run has found may be read and gone by now
            return list_files(paths, access, paths if self._was_listed else ())
        if self._folders is None:
            may_miss = [path for path in paths if _may_match_later(path)]
        else:  # a file may be missing for a moment, when it is rotated
            may_miss = [path for path in paths if path not in self._folders]
        files = list_files(paths, access, may_miss)
        self._folders = frozenset(path for path in paths if is_folder(path, access))
        return files

    def _locate(self, files: Sequence[ListedFile]) -> tuple[dict[str, KnownFile], list[ListedFile]]:
        """Known files by the names that they have now, and those that no path leads to any more."""
        by_path = {file.path: file for file in files}
        by_inode = {file.inode: file for file in files if file.inode is not None}
        folders: dict[str, dict[int, str]] = {}
        found: dict[str, KnownFile] = {}
        elsewhere: list[ListedFile] = []
        emptied = tuple(place for place in self._places if not _any_below(place, by_path))
        for path, known in self._known.items():
            listed = by_path.get(path)
            if listed is not None and same_inode(known.inode, listed.inode):
                found[path] = known
                continue
            now = None if listed is not None else self._access.stat(path)
            if now is None or not same_inode(known.inode, now.inode):
                now = self._renamed(path, known, by_inode, folders)
                if now is not None and not self._is_known(now, known):
                    now = None  # its inode belongs to another file by now
            if now is not None:
                found[now.path] = known
                if now.path not in by_path:
                    elsewhere.append(now)
            elif listed is not None or path.startswith(emptied):
                # Its content says whether it is the same; an empty folder may not be mounted now.
                found.setdefault(path, known)
        return found, elsewhere

    def _renamed(
        self,
        path: str,
        known: KnownFile,
        by_inode: dict[tuple[int, int], ListedFile],
        folders: dict[str, dict[int, str]],
    ) -> ListedFile | None:
        """Where a file is now; it may have left the paths of the source, and have grown before."""
        if known.inode is None or known.inode in by_inode:
            return None if known.inode is None else by_inode[known.inode]
        folder = os.path.dirname(path)
        if folder not in folders:
            folders[folder] = inodes_in(folder)
        name = folders[folder].get(known.inode[1])
        return None if name is None else self._access.stat(name)

    def _is_known(self, file: ListedFile, known: KnownFile) -> bool:
        """Whether what was read of a file is still its beginning."""
        if file.size < known.done:
            return False
        try:
            return digest_of(self._access, file.path, known.done) == known.digest
        except OSError:
            return False

    # What is new.

    def _new_splits(self, file: ListedFile) -> list[FileSplit] | None:
        """Pieces of a file that nobody has; None: it may not be finished."""
        known = self._known.get(file.path)
        if known is not None and known.seen == (file.size, file.mtime_ns, file.inode):
            return []
        if self._was_renamed(file, known):
            return []
        try:
            if self._rules.by_lines and unpacker(file.path) is None:
                return self._new_lines(file, known)
            return self._whole_file(file, known)
        except OSError as error:
            if self._has_left(file):
                return []
            unusable = PathUnusable(printable(file.path), f"cannot be read: {error.strerror}")
            if self._is_first:
                raise unusable from error
            self._complain(file, f"{unusable.problem}; it is tried again")
            return []

    def _was_renamed(self, file: ListedFile, known: KnownFile | None) -> bool:
        """While files were listed: it may be known under the name that it had before."""
        if file.inode is None or (known is not None and known.inode == file.inode):
            return False
        before = self._by_inode.get(file.inode, file.path)
        if before == file.path:
            return False
        now = self._access.stat(before)
        return now is None or now.inode != file.inode

    def _has_left(self, file: ListedFile) -> bool:
        """Whether another file is at its path by now, or none; the next look finds it again."""
        if file.inode is None:
            return False
        now = self._access.stat(file.path)
        if now is None:
            return True
        # Some file systems give a file another inode at any time.
        return now.inode != file.inode and now != replace(file, inode=now.inode)

    def _new_lines(self, file: ListedFile, known: KnownFile | None) -> list[FileSplit]:
        start = 0
        if known is not None:
            if self._is_known(file, known):
                start = known.done
            elif self._has_left(file):
                return []
            else:
                self._complain(file, "was cut or replaced; it is read from its beginning")
        end = self._last_line_end(file, start)
        return self._hand_out(file, start, end, end)

    def _whole_file(self, file: ListedFile, known: KnownFile | None) -> list[FileSplit] | None:
        if known is not None and known.done and self._is_known(file, known):
            if file.size > known.done:
                self._complain(file, "has grown after it was read as a whole; the rest is left out")
            self._known[file.path] = _seen_as(known, file)
            return []
        finished = self._rules.is_finished(self._access, file)
        if finished is None:
            finished = self._waiting.get(file.path) == file
        return self._hand_out(file, 0, None, file.size) if finished else None

    def _hand_out(
        self, file: ListedFile, start: int, end: int | None, done: int
    ) -> list[FileSplit]:
        digest = digest_of(self._access, file.path, done)
        if digest is None or self._has_left(file):
            return []  # it was cut, or renamed and the digest may be another's; look again later
        self._known[file.path] = KnownFile(done, file.size, file.mtime_ns, file.inode, digest)
        if end == start:
            return []
        version = FileVersion(file.inode, done, digest)
        return [replace(piece, version=version) for piece in self._pieces(file, start, end)]

    def _pieces(self, file: ListedFile, start: int, end: int | None) -> Iterator[FileSplit]:
        cuts = self._rules.can_cut and unpacker(file.path) is None
        split_bytes = self._rules.split_bytes if cuts else None
        return cut(file.path, start, end, file.size, split_bytes)

    def _last_line_end(self, file: ListedFile, start: int) -> int:
        """After the last newline; nothing but a line that is too long is cut elsewhere."""
        raw, begin = self._access.open_raw(file.path), file.size
        try:
            while begin > start:
                end, begin = begin, max(start, begin - _BLOCK_BYTES)
                raw.seek(begin)
                newline = int(raw.read(end - begin).rfind(b"\n"))
                if newline >= 0:
                    return begin + newline + 1
                if file.size - begin > self._rules.max_line_bytes + 1:
                    return file.size  # the reader says so
        finally:
            raw.close()
        return start

    def _complain(self, file: ListedFile, problem: str) -> None:
        """Once for each file and problem, as long as the job runs."""
        text = f"{printable(file.path)} {problem}"
        if text not in self._complained and len(self._complained) < MAX_COMPLAINTS:
            self._complained.add(text)
            log.warning("%s", text)


def _may_match_later(path: str) -> bool:
    """Whether a path is a pattern whose folder is there."""
    if not has_pattern(path):
        return False
    return is_remote(path) or os.path.isdir(fixed_part(os.path.abspath(path)) or os.sep)


def _place(path: str) -> str:
    """What the names of all files begin with that a path leads to, but for a single file's."""
    plain = plain_url(path).partition("?")[0] if is_remote(path) else os.path.abspath(path)
    return f"{fixed_part(plain).rstrip('/')}/"


def _any_below(place: str, paths: Iterable[str]) -> bool:
    return any(path.startswith(place) for path in paths)


def _seen_as(known: KnownFile, file: ListedFile) -> KnownFile:
    return replace(known, size=file.size, mtime_ns=file.mtime_ns, inode=file.inode)
