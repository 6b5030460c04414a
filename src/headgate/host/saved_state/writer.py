"""Writes savepoints without a job: state for a job that begins, or a copy with some of it changed.

Everything that is not changed is copied as bytes, without loading it. Law: the metadata is written
last, so that there is a whole savepoint or none; what was written can be restored by any job that
has the operators, with any parallelism and either backend. Called by ``headgate.state.write``.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from headgate.base.checkpoints import (
    METADATA_VERSION,
    ChannelState,
    CheckpointKind,
    Metadata,
    OperatorState,
    Piece,
    SubtaskState,
)
from headgate.base.errors import StateUnfit, StateUnknown, StorageUnusable
from headgate.base.recovery_settings import CheckpointSettings
from headgate.core.state.keys import groups_of
from headgate.host.checkpoints.checkpoint_store import complete, discard
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import CheckpointLocation, savepoint_location
from headgate.host.checkpoints.metadata import checkpoint_key
from headgate.host.checkpoints.pieces import PartWriter, PieceReader, part_name
from headgate.host.net.loop import wall_ms
from headgate.host.saved_state.changes import OperatorChanges
from headgate.host.saved_state.merging import OperatorMerge
from headgate.host.saved_state.reader import SavedState, open_state
from headgate.plan.execution_graph import task_id
from headgate.plan.stream_graph import MAX_KEY_GROUPS

MAX_PARALLELISM: Final = 128
"""Key groups of an operator that says nothing else, as a job's."""
FIRST_CHECKPOINT: Final = 1


def write_savepoint(
    path: str,
    operators: Sequence[OperatorChanges],
    *,
    base: str = "",
    remove: Sequence[str] = (),
    max_parallelism: int = MAX_PARALLELISM,
    name: str = "",
    loads_classes: bool = False,
    secret_file: str = "",
) -> str:
    """A savepoint in the folder ``path``, which is made; returns its path.

    ``base``: the checkpoint or savepoint that is copied and changed, ``remove``: operators that are
    left out of it; ``secret_file``: the key that checks the base and signs the savepoint. Raises
    StateUnfit or CheckpointError, and leaves nothing then.
    """
    signing = checkpoint_key(CheckpointSettings(hmac_secret_file=secret_file))
    location = savepoint_location(open_folder(path, signing=signing))
    if location.own.entries():
        raise StorageUnusable(location.shown, "is not empty", "name a folder that is new or empty")
    found = open_state(base, loads_classes=loads_classes, secret_file=secret_file) if base else None
    _check_uids(operators, found, remove)
    _check_groups(operators, max_parallelism)
    try:
        with ExitStack() as files:  # one for each task: all are closed, or none is left
            writer = _SavepointWriter(location, files, found, operators, frozenset(remove))
            tasks = [*writer.copied(), *writer.made(max_parallelism)]
        complete(location, _metadata(found, tasks, name))
    except BaseException:
        discard(location)
        raise
    return location.own.uri


def _check_uids(
    operators: Sequence[OperatorChanges], base: SavedState | None, remove: Sequence[str]
) -> None:
    uids = [changes.uid for changes in operators]
    there = {operator.uid for operator in base.operators} if base is not None else set()
    named = {operator.name: operator.uid for operator in base.operators} if base is not None else {}
    for uid in uids:
        if uid in named and uid not in there:
            problem = f"that is the name of an operator; call it by its uid, {named[uid]!r}"
            raise StateUnfit(uid, "", problem)
        if uids.count(uid) > 1:
            raise StateUnfit(uid, "", "it is given twice; put all its changes into one operator()")
        if uid in remove:
            raise StateUnfit(uid, "", "it is both changed and removed; name it once")
    for uid in remove:
        if uid not in there:
            known = ", ".join(map(repr, sorted(there))) or "none"
            where = base.path if base is not None else "a new savepoint"
            raise StateUnknown(
                where, f"there is no operator {uid!r}; there are {known}", "name one"
            )
    if not operators and base is None:
        raise StateUnfit("", "", "there is nothing to write; give operator(…) with some state")


def _check_groups(operators: Sequence[OperatorChanges], max_parallelism: int) -> None:
    given = {changes.uid: changes.max_parallelism for changes in operators}
    for uid, groups in [*given.items(), ("", max_parallelism)]:
        if groups is not None and (type(groups) is not int or not 0 < groups <= MAX_KEY_GROUPS):
            problem = f"max_parallelism is {groups!r}; give a number from 1 to {MAX_KEY_GROUPS}"
            raise StateUnfit(uid, "", problem)


class _SavepointWriter:
    def __init__(
        self,
        location: CheckpointLocation,
        files: ExitStack,
        base: SavedState | None,
        operators: Sequence[OperatorChanges],
        removed: frozenset[str],
    ) -> None:
        self._location = location
        self._files = files
        self._base = base
        self._changes = {changes.uid: changes for changes in operators}
        self._removed = removed

    def _task(self, vertex: int, subtask: int) -> PartWriter:
        name = part_name(vertex, subtask, 0)
        digests = self._location.own.signing is not None
        return self._files.enter_context(PartWriter(self._location, name, digests=digests))

    def copied(self) -> Iterator[SubtaskState]:
        """The tasks of the base, with what is changed."""
        base = self._base
        if base is None:
            return
        known = {operator.uid: operator for operator in base.operators}
        with ExitStack() as end:
            merges = {
                uid: end.enter_context(OperatorMerge(changes, known[uid]))
                for uid, changes in self._changes.items()
                if uid in known
            }
            reader = end.enter_context(PieceReader(base.location))
            for task in base.metadata.tasks:
                writer = self._task(task.vertex, task.subtask)
                states = [
                    self._operator(state, task, merges, reader, writer) for state in task.operators
                ]
                channels = tuple(_channel(each, reader, writer) for each in task.channels)
                yield msgspec.structs.replace(task, operators=tuple(states), channels=channels)

    def _operator(
        self,
        state: OperatorState,
        task: SubtaskState,
        merges: Mapping[str, OperatorMerge],
        reader: PieceReader,
        writer: PartWriter,
    ) -> OperatorState:
        if state.uid in self._removed:
            return OperatorState(state.uid, state.name)
        merge = merges.get(state.uid)
        keep = partial(_copied, reader=reader, writer=writer)
        if merge is None:
            keyed = {group: keep(piece) for group, piece in state.keyed.items()}
            files = {name: keep(piece) for name, piece in state.files.items()}
            plain = None if state.plain is None else keep(state.plain)
            shapes, is_own = state.shapes, state.plain_is_own
        else:
            own = groups_of(task.subtask, task.parallelism, task.max_parallelism)
            keyed, files = merge.keyed(state, own, reader, writer)
            plain, is_own = merge.plain(state, task.subtask, task.parallelism, reader, writer)
            shapes = merge.shapes
        return msgspec.structs.replace(
            state,
            keyed=keyed,
            files=files,
            plain=plain,
            plain_is_own=is_own,
            source=None if state.source is None else keep(state.source),
            sink=None if state.sink is None else keep(state.sink),
            shapes=shapes,
        )

    def made(self, max_parallelism: int) -> Iterator[SubtaskState]:
        """A task for each operator that the base does not have."""
        known = self._base.metadata.tasks if self._base is not None else ()
        vertex = max((task.vertex for task in known), default=-1)
        there = {state.uid for task in known for state in task.operators}
        for uid, changes in self._changes.items():
            if uid in there:
                continue
            vertex += 1
            own = changes.max_parallelism
            groups = max_parallelism if own is None else own
            with OperatorMerge(changes, None, groups) as merge:
                writer = self._task(vertex, 0)
                empty = OperatorState(uid, changes.name or uid)
                keyed, _ = merge.keyed(empty, range(groups), None, writer)
                plain, is_own = merge.plain(empty, 0, 1, None, writer)
                state = msgspec.structs.replace(
                    empty, keyed=keyed, plain=plain, plain_is_own=is_own, shapes=merge.shapes
                )
            yield SubtaskState(task_id(vertex, 0), vertex, 0, 1, groups, (state,))


def _copied(piece: Piece, reader: PieceReader, writer: PartWriter) -> Piece:
    """A copy of a piece, whose checksum is compared on the way."""
    return writer.append(reader.read(piece))


def _channel(channel: ChannelState, reader: PieceReader, writer: PartWriter) -> ChannelState:
    pieces = tuple(_copied(piece, reader, writer) for piece in channel.pieces)
    return msgspec.structs.replace(channel, pieces=pieces)


def _metadata(base: SavedState | None, tasks: Iterable[SubtaskState], name: str) -> Metadata:
    now_ms = wall_ms()
    if base is None:
        job = f"written-{secrets.token_hex(6)}"
        return Metadata(
            METADATA_VERSION,
            FIRST_CHECKPOINT,
            CheckpointKind.SAVEPOINT,
            job,
            name or "written savepoint",
            now_ms,
            now_ms,
            tuple(tasks),
        )
    return msgspec.structs.replace(
        base.metadata,
        kind=CheckpointKind.SAVEPOINT,
        completed_ms=now_ms,
        name=name or base.metadata.name,
        tasks=tuple(tasks),
    )
