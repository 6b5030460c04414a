"""Reads of keyed state of a running job, in its driver: which task has a key, and what it answers.

A key goes to the task that ``key_by`` would send its records to. All keys of a task are read at one
moment of it. Law: a read that meets a restart is asked again until its time is over; whatever else
goes wrong is a ``StateUnreadable`` with one sentence. Values come pickled over connections that
have proven to know the job's secret; none from elsewhere is unpickled.

``shown_state`` takes keys as people type them and shows values as JSON. A key whose type the
program has declared is read by that type; another one is a JSON literal, with arrays for tuples, or
a text.
What JSON cannot say exactly is shown as ``repr`` says it, cut.
"""

import datetime
import json
import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NoReturn, Protocol
from uuid import UUID

import msgspec

from headgate.api.row import Row, named_row
from headgate.api.types.types import (
    BasicTypeInfo,
    ElementsTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headgate.base.elements import UNREADABLE, Key, Record, error_text
from headgate.base.errors import InspectionFailed, StateUnreadable
from headgate.base.inspections import (
    MAX_STATE_KEYS,
    Found,
    Inspection,
    ReadState,
    ShownState,
    ShownValue,
    StateValue,
    StateValues,
)
from headgate.base.moved import loads
from headgate.core.chain.spec import OperatorSpec
from headgate.core.state.keys import key_group
from headgate.plan.execution_graph import task_id
from headgate.plan.job_graph import JobGraph, JobVertex
from headgate.plan.stream_graph import is_place

TIMEOUT_S: Final = 5.0
AGAIN_S: Final = 0.1
"""Between two questions to a job that restarts."""
LONGEST_REPR: Final = 10_000
DEEPEST: Final = 64
LARGEST_INT: Final = 2**63

KEY_TYPES: Final = ("string", "int", "float", "bool", "bytes", "tuple", "json")
"""What people may say about keys of which the program says nothing."""
_ISO: Final[dict[str, Callable[[str], object]]] = {
    "SQL_DATE": datetime.date.fromisoformat,
    "SQL_TIME": datetime.time.fromisoformat,
    "SQL_TIMESTAMP": datetime.datetime.fromisoformat,
    "BIG_DEC": Decimal,
}


class ReadableJob(Protocol):
    """What a read needs of a job."""

    @property
    def graph(self) -> JobGraph: ...

    def has_ended(self) -> bool: ...

    def inspect(self, task: str, what: Inspection, timeout_s: float) -> "Future[Found]": ...


@dataclass(frozen=True, slots=True)
class StatefulPlace:
    """An operator, and the vertex that it is a part of."""

    vertex: JobVertex
    operator: OperatorSpec

    def subtask_of(self, key: Key) -> int:
        """The task that has this key; raises StateUnreadable."""
        vertex = self.vertex
        try:
            group = key_group(key, vertex.max_parallelism)
        except UNREADABLE as error:
            raise StateUnreadable(
                f"{_short(key)} cannot be a key: {error_text(error)}; give what the key selector "
                f"returns"
            ) from error
        return group * vertex.parallelism // vertex.max_parallelism


def find_operator(graph: JobGraph, called: str) -> StatefulPlace:
    """The operator with this uid, or the only one of this name; raises StateUnreadable."""
    places = [
        StatefulPlace(vertex, operator)
        for vertex in graph.vertices
        for operator in vertex.chain.operators
    ]
    for fits in (
        [place for place in places if place.operator.uid == called],
        [place for place in places if place.operator.name == called],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise StateUnreadable(
                f"{len(fits)} operators of the job are called {called!r}; give the one that you "
                f"mean a uid with uid()"
            )
    there = ", ".join(_named(place.operator) for place in places)
    raise StateUnreadable(f"the job has no operator {called!r}; it has {there}")


class StateRead:
    """One request; it begins at once. See ``Promise``."""

    def __init__(
        self, job: ReadableJob, called: str, state: str, keys: Sequence[Key], timeout_s: float
    ) -> None:
        """Raises StateUnreadable for what no task needs to be asked about."""
        if len(keys) > MAX_STATE_KEYS:
            raise StateUnreadable(
                f"{len(keys):,} keys were given; one request takes {MAX_STATE_KEYS:,} at most"
            )
        if not timeout_s > 0:  # nan, too: with it no time would ever be over
            raise StateUnreadable(f"the time to wait is {timeout_s!r} s; give more than 0")
        self.place = find_operator(job.graph, called)
        self.keys = keys
        self.kind = ""
        self._job = job
        self._state = state
        self._deadline = time.monotonic() + timeout_s
        self._places: dict[int, list[int]] = {}  # of the keys in the request, by subtask
        for at, key in enumerate(keys):
            self._places.setdefault(self.place.subtask_of(key), []).append(at)
        self._pickled = [_pickled(key) for key in keys]
        self._futures = self._ask()

    def done(self) -> bool:
        """Whether the tasks have answered; ``result`` may ask once more all the same."""
        return all(future.done() for future in self._futures)

    def result(self) -> list[Record]:
        """A value for each key; where nothing is, None, an empty list or an empty dict.

        Waits; raises StateUnreadable.
        """
        return [
            self._value(key, value) for key, value in zip(self.keys, self.values(), strict=True)
        ]

    def values(self) -> list[StateValue]:
        """The values as the tasks have sent them."""
        found: dict[int, StateValue] = {}
        for places, answer in zip(self._places.values(), self._answers(), strict=True):
            if answer.problem:
                self._refuse(answer.problem)
            self.kind = answer.kind
            found.update(zip(places, answer.values, strict=True))
        return [found[at] for at in range(len(self.keys))]

    def _ask(self) -> "list[Future[Found]]":
        left_s = max(0.0, self._deadline - time.monotonic())
        operator, vertex = self.place.operator, self.place.vertex
        return [
            self._job.inspect(
                task_id(vertex.id, subtask),
                ReadState(
                    operator.uid,
                    self._state,
                    tuple(self._pickled[at] for at in places),
                    left_s * 1000,
                ),
                left_s,
            )
            for subtask, places in self._places.items()
        ]

    def _answers(self) -> list[StateValues]:
        while True:
            try:
                found = [future.result() for future in self._futures]
            except InspectionFailed as error:
                left_s = self._deadline - time.monotonic()
                if left_s <= AGAIN_S or self._job.has_ended():
                    self._refuse(f"task {error.task}: {error.problem}", is_passing=True)
                time.sleep(AGAIN_S)  # it restarts, or is about to start
                self._futures = self._ask()
            else:
                answers = [answer for answer in found if isinstance(answer, StateValues)]
                assert len(answers) == len(found), f"{found} are no answers to reads of state"
                return answers

    def _value(self, key: Key, value: StateValue) -> Record:
        if value.problem:
            self._refuse(f"key {_short(key)}: {value.problem}")
        if value.data is None:
            return {"list": [], "map": {}}.get(self.kind)
        try:
            return loads(value.data)
        except UNREADABLE as error:
            self._refuse(f"key {_short(key)}: its value cannot be unpickled: {error_text(error)}")

    def _refuse(self, problem: str, *, is_passing: bool = False) -> NoReturn:
        operator = self.place.operator
        raise StateUnreadable(
            f"state {self._state!r} of operator {_named(operator)} cannot be read: {problem}",
            is_passing=is_passing,
        )


def _named(operator: OperatorSpec) -> str:
    """The uid if somebody has given it one, else its name."""
    if is_place(operator.uid):
        return f"{operator.name!r} (without a uid)"
    return repr(operator.uid)


def _pickled(key: Key) -> bytes:
    try:
        return pickle.dumps(key, 5)
    except UNREADABLE as error:
        raise StateUnreadable(f"{_short(key)} cannot be sent: {error_text(error)}") from error


def _short(key: Key) -> str:
    return _cut(shown_repr(key), 80)


def shown_state(
    job: ReadableJob,
    called: str,
    state: str,
    texts: Sequence[str],
    key_type: str = "",
    timeout_s: float = TIMEOUT_S,
) -> ShownState:
    """Read some keys, given as texts, and show what is there; waits. Raises StateUnreadable."""
    declared = find_operator(job.graph, called).operator.key_type
    keys = [parse_key(text, declared, key_type) for text in texts]
    read = StateRead(job, called, state, keys, timeout_s)
    values = read.values()
    shown = [shown_value(key, value) for key, value in zip(keys, values, strict=True)]
    operator = read.place.operator
    return ShownState(operator.uid, operator.name, state, read.kind, shown)


def parse_key(text: str, declared: object, key_type: str = "") -> Key:
    """A key; ``key_type`` is one of KEY_TYPES and goes before what is declared."""
    try:
        if key_type:
            return _as_said(text, key_type)
        takes_anything = getattr(declared, "takes_anything", False)
        if isinstance(declared, TypeInformation) and not takes_anything:
            return _as_declared(text, declared)
    except UNREADABLE as error:
        wanted = f"of the type {declared!r}" if not key_type else f"a {key_type}"
        raise StateUnreadable(
            f"the key {_cut(text, 80)!r} is not {wanted}: {error_text(error)}"
        ) from error
    try:
        return _tuples(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _as_said(text: str, key_type: str) -> Key:
    match key_type:
        case "string":
            return text
        case "bytes":
            return text.encode()
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "json":
            return json.loads(text)
        case "tuple":
            found = json.loads(text)
            if not isinstance(found, list):
                raise TypeError("give a JSON array")
            return _tuples(found)
        case _:
            raise TypeError(f"give one of {', '.join(KEY_TYPES)}")


def _as_declared(text: str, declared: TypeInformation) -> Key:
    if isinstance(declared, BasicTypeInfo) and declared.name in ("STRING", "CHAR", *_ISO):
        return declared.coerced(_typed(text, declared))
    if isinstance(declared, ElementsTypeInfo) and declared.is_bytes:
        return text.encode()
    key = _typed(json.loads(text), declared)
    return _as_selected(key, declared.coerced(key), declared)


def _as_selected(given: Record, coerced: Record, declared: TypeInformation) -> Key:
    """As the key selector returns it: ``key_by`` rounds no number to a FLOAT and names no field.

    A row that is given as an array has no names, if its type has none of its own.
    """
    if type(given) is type(coerced):
        return given
    if not isinstance(given, list) or not isinstance(declared, TupleTypeInfo | RowTypeInfo):
        return coerced
    parts = zip(given, coerced, declared.field_types, strict=True)
    fields = [_as_selected(*part) for part in parts]
    if isinstance(declared, TupleTypeInfo):
        return tuple(fields)
    return named_row(declared.field_names, fields) if declared.has_own_names else Row(*fields)


def _typed(value: Record, declared: TypeInformation) -> Record:
    """What JSON has no word for, wherever it stands, from its text."""
    if value is None:
        return None
    if isinstance(declared, BasicTypeInfo) and isinstance(value, str):
        return _ISO.get(declared.name, str)(value)
    if isinstance(declared, TupleTypeInfo | RowTypeInfo) and isinstance(value, list):
        return [_typed(*pair) for pair in zip(value, declared.field_types, strict=True)]
    if isinstance(declared, RowTypeInfo) and isinstance(value, dict):
        types = dict(zip(declared.field_names, declared.field_types, strict=True))
        if unknown := sorted({*value} - {*types}):
            raise TypeError(f"it has no field {unknown[0]!r}")
        return {name: _typed(field, types[name]) for name, field in value.items()}
    return value


def _tuples(value: Record) -> Key:
    """JSON's arrays as tuples: keys are rarely lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return value


def shown_value(key: Key, value: StateValue) -> ShownValue:
    """One value, in JSON's words if it has any."""
    shown_key = in_json(key)
    if shown_key is None and key is not None:
        shown_key = shown_repr(key)
    if value.data is None:
        return ShownValue(shown_key, False, problem=value.problem)
    try:
        held = loads(value.data)
    except UNREADABLE as error:
        problem = f"its value cannot be unpickled in the driver: {error_text(error)}"
        return ShownValue(shown_key, True, problem=problem)
    words = in_json(held)
    if words is None and held is not None:
        return ShownValue(shown_key, True, text=shown_repr(held))
    return ShownValue(shown_key, True, words)


def in_json(value: Record) -> Any:
    """The value in what JSON can say; None: it cannot say it, or the value is None."""
    try:
        words = _words(value, DEEPEST)
        msgspec.json.encode(words)  # lone surrogates, for one
    except UNREADABLE:
        return None
    return words


def _words(value: Record, depth: int) -> Any:
    if depth == 0:
        raise TypeError("it is too deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int) and -LARGEST_INT <= value < LARGEST_INT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, Row) and value.get_field_names():
        value = value.as_dict()
    if isinstance(value, list | tuple | Row):
        return [_words(item, depth - 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): _words(item, depth - 1) for name, item in value.items()}
    raise TypeError(f"JSON has no word for a {type(value).__name__}")


def shown_repr(value: Record) -> str:
    """As ``repr`` shows it, cut; whatever the user's class makes of that."""
    try:
        text = repr(value)
    except UNREADABLE as error:
        text = f"a {type(value).__name__}, whose repr() fails: {error_text(error)}"
    return _cut(text, LONGEST_REPR).encode("utf-8", "backslashreplace").decode()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
