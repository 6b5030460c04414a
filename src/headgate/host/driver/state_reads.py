"""Reads of keyed state of a running job, in its driver: which task has a key, and what it answers.

A key goes to the task that ``key_by`` would send its records to. All keys of a task are read at one
moment of it; different tasks are at different ones. Law: a read that meets a restart is asked again
until its time is over; whatever else goes wrong is a ``StateUnreadable`` with one sentence. Values
come pickled over connections that have proven to know the job's secret, from processes that run the
user's own code; none from elsewhere is unpickled.
"""

import pickle
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from headgate.base.elements import UNREADABLE, Key, Record, error_text
from headgate.base.errors import InspectionFailed, StateUnreadable
from headgate.base.inspections import (
    MAX_STATE_KEYS,
    Found,
    Inspection,
    ReadState,
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
    try:
        text = repr(key)
    except UNREADABLE:
        return f"a {type(key).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"
