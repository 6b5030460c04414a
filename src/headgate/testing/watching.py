"""Stands between the tasks of a run and the operators of the program.

It sees what comes to each operator, so that it finds one that changes its input, lets sources give
few records at a time, and raises exceptions on purpose. Law: it changes nothing else.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from headgate.base.elements import Bundle, Record
from headgate.base.errors import HeadgateError
from headgate.core.chain.operator import Operator, PolledOperator, PollResult
from headgate.core.chain.spec import OperatorSpec
from headgate.plan.job_graph import JobVertex
from headgate.testing.canonical import short_text, text_of

SAMPLES = 24


class SimulatedFault(BaseException):
    """Raised in an operator on purpose; no ``except Exception`` of a user catches it."""


class InputMutated(HeadgateError):
    """A function has changed a record that it was given."""

    def __init__(self, operator: str, before: str, after: str) -> None:
        super().__init__(
            f"operator {operator!r} changes its input: {before} became {after}; copy a record "
            f"before you change it, as others may hold it (or call simulate with "
            f"allow_mutation=True)"
        )
        self.operator = operator


class Watch:
    """Watches the operators of one run."""

    def __init__(self, seed: int = 0, *, mutation: bool = False) -> None:
        """``mutation``: raise if an operator changes its input."""
        self.poll_limits: tuple[int, ...] = ()
        """How many records a source gives at a time, at most; empty: as many as it likes."""
        self.pauses: tuple[float, ...] = ()
        """Milliseconds that a source waits before a poll; empty: none."""
        self._fails = False
        self.samples: dict[int, list[bytes]] = {}
        """Some records that came to each operator, by its id, pickled."""
        self.takes_samples = False
        self._mutation = mutation
        self._random = Random(f"watch {seed}")

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to watch."""
        return bool(self._mutation or self.takes_samples or self.poll_limits or self.pauses)

    def wrap(self, vertices: Mapping[int, JobVertex]) -> Mapping[int, JobVertex]:
        """The vertices with operators that are watched."""
        if not self.is_needed:
            return vertices
        return {number: self._watched(vertex) for number, vertex in vertices.items()}

    def _watched(self, vertex: JobVertex) -> JobVertex:
        operators = tuple(
            replace(spec, make=_Watched(self, spec)) for spec in vertex.chain.operators
        )
        return replace(vertex, chain=replace(vertex.chain, operators=operators))

    def limit(self, limit: int) -> int:
        """How many records a source may give now."""
        return min(limit, self._random.choice(self.poll_limits)) if self.poll_limits else limit

    def pause_ms(self) -> float:
        """How long a source is to wait now."""
        return self._random.choice(self.pauses) if self.pauses else 0.0

    def fail_next(self) -> None:
        """The next operator that works shall fail."""
        self._fails = True

    def call(self, name: str) -> None:
        """An operator is about to work."""
        if self._fails:
            self._fails = False
            raise SimulatedFault(f"operator {name!r} is made to fail")

    def sample(self, operator: int, records: list[Record]) -> None:
        """Keep a few."""
        if self.takes_samples:
            kept = self.samples.setdefault(operator, [])
            for record in records[: SAMPLES - len(kept)]:
                kept.append(pickle.dumps(record))

    def compare(self, name: str, before: list[Any], records: list[Record]) -> None:
        """Raise if records are not as they were."""
        for old, record in zip(before, records, strict=True):
            if old is not None and old != text_of(record):
                raise InputMutated(name, short_text(old), short_text(text_of(record)))

    def texts(self, records: list[Record]) -> list[str] | None:
        """How records look; None: nobody wants to know."""
        return [text_of(record) for record in records] if self._mutation else None


class _Watched:
    """Makes an operator and stands in front of it."""

    def __init__(self, watch: Watch, spec: OperatorSpec) -> None:
        self._watch = watch
        self._make: Callable[[], Operator] = spec.make
        self._name, self._id = spec.name, spec.id

    def __call__(self) -> Operator:
        operator = self._make()
        if isinstance(operator, PolledOperator):
            operator.poll = self._poll(operator, operator.poll)  # type: ignore[method-assign,assignment]
        else:
            operator.process = self._process(operator.process)  # type: ignore[method-assign,assignment]
        return operator

    def _poll(self, source: Any, poll: Callable[[int], PollResult]) -> Callable[[int], PollResult]:
        watch, name = self._watch, self._name
        was_pausing = False

        def watched(limit: int) -> PollResult:
            nonlocal was_pausing
            watch.call(name)
            was_pausing = not was_pausing
            if was_pausing and (pause_ms := watch.pause_ms()):
                source.wait_ms, source.descriptors = pause_ms, []
                return PollResult.NOTHING
            return poll(watch.limit(limit))

        return watched

    def _process(self, process: Callable[[Bundle, int], None]) -> Callable[[Bundle, int], None]:
        watch, name, number = self._watch, self._name, self._id

        def watched(bundle: Bundle, of_input: int) -> None:
            watch.call(name)
            watch.sample(number, bundle.records)
            records = list(bundle.records)
            before = watch.texts(records)
            process(bundle, of_input)
            if before is not None:
                watch.compare(name, before, records)

        return watched
