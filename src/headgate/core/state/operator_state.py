"""State of an operator as a whole, without keys: lists that are shared out anew, broadcast maps.

A snapshot is the bytes of one task. Law: restored to any number of tasks, a split list has each
element in exactly one of them and in the old order, a union list has all elements in each, and a
broadcast state is the same in each.
"""

import pickle
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from headgate.base.checkpoints import FUNCTION, StateShape
from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, StateBroken
from headgate.base.moved import loads
from headgate.core.state.migration import (
    SAMPLED,
    Change,
    Convert,
    StateShapes,
    converter,
    shape_of,
    types_of,
)
from headgate.core.state.opening import Check, TypedList, as_it_is, check_for
from headgate.core.state.snapshot import Load
from headgate.functions.context import OperatorStateStore
from headgate.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
)

SPLIT: Final = "split list"
UNION: Final = "union list"
BROADCAST: Final = "broadcast map"

_VERSION: Final = 1
_MAGIC: Final = b"HgOS"
_HEADER: Final = struct.Struct("<4sBI")


class OperatorStates(OperatorStateStore):
    """Lists and broadcast maps of one operator of one task, by name.

    States may be opened before or after ``restore``; a name stands for one kind of state.
    """

    def __init__(self) -> None:
        self._lists: dict[str, list[Record]] = {}
        self._maps: dict[str, dict[Record, Record]] = {}
        self._kinds: dict[str, str] = {}
        self._restored: dict[str, str] = {}
        """Kinds of what was restored, by name."""
        self._settled: dict[str, None] = {}
        self._shapes = StateShapes()
        self._scope = FUNCTION

    def compare_with(self, shapes: StateShapes, scope: str) -> None:
        """What an earlier run has noted of these states; told before any of them is opened."""
        self._shapes, self._scope = shapes, scope

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Record]:
        return self._list(descriptor, SPLIT)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState[Record]:
        return self._list(descriptor, UNION)

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> BroadcastState[Record, Record]:
        return self._broadcast(state_descriptor, HeldBroadcast)  # type: ignore[return-value]

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Record, Record]:
        """The map of a broadcast state, to be read."""
        return self._broadcast(descriptor, BroadcastView)

    @property
    def is_empty(self) -> bool:
        """Whether no state was asked for, and none restored."""
        return not self._kinds

    @property
    def has_unions(self) -> bool:
        """Whether a restored task needs what all old tasks have left, not its own alone."""
        return UNION in self._kinds.values()

    def snapshot(self) -> bytes:
        """All states as they are now; raises StateBroken."""
        held: list[tuple[str, str, Record]] = [
            (kind, name, self._maps[name] if kind == BROADCAST else self._lists[name])
            for name, kind in self._kinds.items()
        ]
        return write_states(held)

    def restore(self, parts: Sequence[bytes | None], subtask: int, parallelism: int) -> None:
        """Take over what this task gets of all parts, one of each old task, by their index.

        With the old parallelism each task gets its own split lists again. None: that task has left
        nothing, or nothing that is needed here. Raises StateBroken.
        """
        tasks = [{} if part is None else read_states(part) for part in parts]
        names = dict.fromkeys((kind, name) for held in tasks for kind, name in held)
        for kind, name in names:
            try:
                self._enter(name, kind)
            except ValueError as error:
                raise StateBroken(str(error)) from None
            self._restored[name] = kind
            found = [held.get((kind, name)) for held in tasks]
            if kind == BROADCAST:
                maps = [content for content in found if content is not None]
                self._maps[name].clear()
                self._maps[name].update(maps[subtask % len(maps)])
            else:
                lists = [content or [] for content in found]
                self._lists[name][:] = _share(kind, lists, subtask, parallelism)

    def _list(self, descriptor: ListStateDescriptor, kind: str) -> ListState[Record]:
        _expect(descriptor, ListStateDescriptor)
        self._settle(descriptor, kind)
        self._enter(descriptor.name, kind)
        held: ListState[Record] = HeldList(self._lists[descriptor.name])
        check = check_for(descriptor.name, descriptor.type_info)
        return held if check is None else TypedList(held, check)

    def _broadcast(
        self, descriptor: MapStateDescriptor, kind: "type[BroadcastView]"
    ) -> "BroadcastView":
        _expect(descriptor, MapStateDescriptor)
        self._settle(descriptor, BROADCAST)
        self._enter(descriptor.name, BROADCAST)
        return kind(
            descriptor.name,
            self._maps[descriptor.name],
            check_for(descriptor.name, descriptor.key_type_info, is_key=True),
            check_for(descriptor.name, descriptor.type_info),
        )

    def _settle(self, descriptor: StateDescriptor, kind: str) -> None:
        """When a state is opened first: make of what was restored what it is now."""
        name, shapes = descriptor.name, self._shapes
        if name in self._settled:
            return
        types = types_of(descriptor)
        shape = StateShape(name, kind, tuple(map(shape_of, types)), self._scope)
        before, restored = shapes.before(name, self._scope), self._restored.get(name)
        had = str(before[0]) if before else restored or ""
        if restored not in (None, kind):
            shapes.refuse(shape, had)
        change = shapes.compare(shape)
        if restored is not None and (not before or change is Change.REWRITTEN):
            known = before[0].types if before else (None,) * len(types)
            converts = tuple(map(converter, known, types))
            try:
                self._convert(name, kind, converts, is_known=bool(before))
            except TypeError as error:
                shapes.refuse(shape, had, str(error))
        shapes.enter(shape)
        self._settled[name] = None

    def _convert(self, name: str, kind: str, converts: tuple[Convert, ...], is_known: bool) -> None:
        """Values in the form of the new type; of unknown ones a few are only looked at."""
        limit = None if is_known else SAMPLED
        if kind == BROADCAST:
            of_key, of_value = converts
            held = self._maps[name]
            made = {of_key(key): of_value(held[key]) for key in list(held)[:limit]}
            if is_known:
                held.clear()
                held.update(made)
        else:
            elements = [converts[0](element) for element in self._lists[name][:limit]]
            if is_known:
                self._lists[name][:] = elements

    def _enter(self, name: str, kind: str) -> None:
        known = self._kinds.setdefault(name, kind)
        if known != kind:
            raise ValueError(
                f"the operator's state {name!r} is there as a {known} and cannot be used as a "
                f"{kind}; give it another name"
            )
        if kind == BROADCAST:
            self._maps.setdefault(name, {})
        else:
            self._lists.setdefault(name, [])


class HeldList(ListState[Record]):
    """A list of an operator."""

    def __init__(self, held: list[Record]) -> None:
        self._held = held

    def get(self) -> list[Record]:
        return list(self._held)

    def add(self, value: Record) -> None:
        self._held.append(value)

    def add_all(self, values: Iterable[Record]) -> None:
        self._held += list(values)

    def update(self, values: Iterable[Record]) -> None:
        self._held[:] = list(values)

    def clear(self) -> None:
        self._held.clear()


class BroadcastView(ReadOnlyBroadcastState[Record, Record]):
    """A broadcast state as records of the other side see it: nobody may change it."""

    def __init__(
        self,
        name: str,
        held: dict[Record, Record],
        check_key: Check | None,
        check: Check | None,
    ) -> None:
        self._name = name
        self._held = held
        self._check_key = check_key or as_it_is
        self._check = check or as_it_is

    def get(self, key: Record) -> Record:
        found = self._held.get(key)
        return self._held.get(self._check_key(key)) if found is None else found

    def contains(self, key: Record) -> bool:
        return key in self._held or self._check_key(key) in self._held

    def items(self) -> list[tuple[Record, Record]]:
        return list(self._held.items())

    def keys(self) -> list[Record]:
        return list(self._held)

    def values(self) -> list[Record]:
        return list(self._held.values())

    def is_empty(self) -> bool:
        return not self._held

    def clear(self) -> None:
        raise RuntimeError(self._only_read())

    def __getattr__(self, name: str) -> NoReturn:
        # There are no methods that change it; who looks for one learns why.
        reason = f" ({self._only_read()})" if name in ("put", "put_all", "remove") else ""
        raise AttributeError(f"{type(self).__name__} has no {name}{reason}")

    def _only_read(self) -> str:
        return (
            f"the broadcast state {self._name!r} can only be read here; change it in "
            f"process_broadcast_element"
        )


class HeldBroadcast(BroadcastView, BroadcastState[Record, Record]):
    """A broadcast state as records of the broadcast side see it."""

    def put(self, key: Record, value: Record) -> None:
        self._held[self._check_key(key)] = None if value is None else self._check(value)

    def remove(self, key: Record) -> None:
        self._held.pop(self._check_key(key), None)

    def clear(self) -> None:
        self._held.clear()


def _share(kind: str, lists: list[list[Record]], subtask: int, parallelism: int) -> list[Record]:
    if kind == SPLIT and len(lists) == parallelism:
        return lists[subtask]
    together = [element for elements in lists for element in elements]
    if kind == UNION:
        return together
    count = len(together)
    return together[count * subtask // parallelism : count * (subtask + 1) // parallelism]


def write_states(held: list[tuple[str, str, Record]]) -> bytes:
    """Kinds, names and contents as the bytes of one task; raises StateBroken."""
    try:
        body = pickle.dumps(held, 5)
    except Exception as error:
        raise _unpicklable(held, error) from error
    return _HEADER.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def is_states(part: bytes) -> bool:
    """Whether these are bytes of ``write_states``."""
    return part.startswith(_MAGIC)


def read_states(part: bytes, load: Load = loads) -> dict[tuple[str, str], Record]:
    """Contents by kind and name; raises StateBroken."""
    if len(part) < _HEADER.size:
        raise StateBroken(f"an operator's state has {len(part)} bytes and no whole header")
    magic, version, checksum = _HEADER.unpack_from(part)
    if magic != _MAGIC or version != _VERSION:
        raise StateBroken(f"an operator's state begins with {magic!r}, version {version}")
    body = memoryview(part)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise StateBroken("an operator's state was cut or changed: its checksum is wrong")
    try:
        return {(kind, name): content for kind, name, content in load(body)}
    except HeadgateError:
        raise
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"an operator's state cannot be read ({type(error).__name__}: {error}); the classes of "
            f"the values must still be there under their old names"
        ) from error


def _unpicklable(held: list[tuple[str, str, Record]], error: Exception) -> StateBroken:
    for kind, name, content in held:
        try:
            pickle.dumps(content, 5)
        except Exception as problem:
            return StateBroken(
                f"the operator's state {name!r} ({kind}) cannot be written to a snapshot "
                f"({type(problem).__name__}: {problem}); its values must be picklable"
            )
    return StateBroken(f"state cannot be written to a snapshot ({type(error).__name__}: {error})")


def _expect(descriptor: object, kind: type) -> None:
    if not isinstance(descriptor, kind):
        raise TypeError(f"{descriptor!r} was given for a state; give a {kind.__name__}")
