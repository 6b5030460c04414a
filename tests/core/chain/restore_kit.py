"""What the tests of restored operators are made of.

`OperatorTasks` are all tasks of one operator. Each action of a test is applied to them; what a
checkpoint stores of them, as bytes, is restored to tasks of any parallelism.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headgate.base.checkpoints import StateShape
from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.state.backend import Backends
from headgate.core.state.keys import groups_of, key_group
from headgate.core.state.memory import MemoryBackends
from headgate.functions.context import SnapshotMoment, TaskInfo
from tests.core.chain.kit import HandClock, KeptOutput

GROUPS = 128
MOMENT = SnapshotMoment(checkpoint=7, timestamp_ms=1_000)


class StoredState(NamedTuple):
    """What a checkpoint stores of one task."""

    groups: list[tuple[int, bytes]]
    plain: bytes | None
    plain_is_own: bool
    source: bytes | None
    shapes: tuple[StateShape, ...] = ()


def stored_state(operator: Operator, moment: SnapshotMoment = MOMENT) -> StoredState:
    """What a checkpoint stores of an operator, as bytes."""
    operator.before_barrier(moment)
    snapshot = operator.snapshot(moment)
    try:
        groups = [] if snapshot.keyed is None else list(snapshot.keyed.groups())
    finally:
        snapshot.close()
    plain, is_own = snapshot.plain, snapshot.plain_is_own
    return StoredState(groups, plain, is_own, snapshot.source, snapshot.shapes)


def restored(
    states: Sequence[StoredState | None], subtask: int, parallelism: int
) -> OperatorRestored:
    """What a new task gets of it; None: that old task had finished."""
    there = [state for state in states if state is not None]
    plain = [None if state is None else state.plain for state in states]
    is_own = all(state.plain is None or state.plain_is_own for state in there)
    if is_own and len(states) == parallelism:
        plain = [part if old == subtask else None for old, part in enumerate(plain)]
    groups = [group for state in there for group in state.groups]
    source = tuple(None if state is None else state.source for state in states)
    own = groups_of(subtask, parallelism, GROUPS)
    return OperatorRestored(
        checkpoint=MOMENT.checkpoint,
        keyed=lambda: iter([group for group in groups if group[0] in own]),
        plain=tuple(plain) if any(part is not None for part in plain) else (),
        source=source if any(part is not None for part in source) else (),
        shapes=tuple(dict.fromkeys(shape for state in there for shape in state.shapes)),
    )


class Send(NamedTuple):
    """Records of one input, each with its key, or without."""

    rows: Sequence[tuple[Any, int | None]]
    number: int = 0


class Clock(NamedTuple):
    """It is so much later."""

    by_ms: int


END = "the end of the input"

KeyOf = Callable[[Any], Any]
ALL = "all tasks"
"""In the place of a key selector: the input is broadcast."""


class OperatorTasks:
    """All tasks of one operator; ``seen`` is what they have sent, in one order."""

    def __init__(
        self,
        make: Callable[[], Operator],
        keys_of: Sequence[KeyOf | str | None] = (None,),
        parallelism: int = 1,
        clock: HandClock | None = None,
        states: Sequence[StoredState | None] | None = None,
        backends: Backends | None = None,
        types: tuple[object, object] = (None, None),
    ) -> None:
        """``types``: declared of its keys and of its records."""
        self.clock = clock or HandClock()
        self._types = types
        self.seen: list[Any] = []
        self.operators = []
        self._keys_of = keys_of
        for subtask in range(parallelism):
            operator = make()
            operator.set_up(SeenOutput(self.seen))
            given = None if states is None else restored(states, subtask, parallelism)
            operator.open(self._context(subtask, parallelism, given, backends or MemoryBackends()))
            self.operators.append(operator)

    def apply(self, action: Any) -> None:
        if isinstance(action, Send):
            self._send(action)
        elif isinstance(action, Watermark):
            for operator in self.operators:
                operator.watermark_advanced(action)
        elif isinstance(action, Clock):
            self.clock.move_to(self.clock.now_ms + action.by_ms)
        else:
            self.apply(Watermark(MAX_WATERMARK_MS))
            for operator in self.operators:
                for number in range(operator.inputs):
                    operator.end_input(number)
                operator.finish()

    def stored_states(self) -> list[StoredState]:
        return [stored_state(operator) for operator in self.operators]

    def close(self) -> None:
        for operator in self.operators:
            operator.close()

    def _send(self, send: Send) -> None:
        key_of = self._keys_of[send.number]
        rows: dict[int, list[tuple[Any, int | None]]] = {}
        for record, time_ms in send.rows:
            for task in self._tasks_of(record, key_of):
                rows.setdefault(task, []).append((record, time_ms))
        for task, some in sorted(rows.items()):
            times = [time_ms for _, time_ms in some]
            self.operators[task].process(Bundle([record for record, _ in some], times), send.number)

    def _tasks_of(self, record: Any, key_of: Any) -> Sequence[int]:
        parallelism = len(self.operators)
        if key_of == ALL:
            return range(parallelism)
        if key_of is None:
            return (0,)
        group = key_group(key_of(record), GROUPS)
        owners = (groups_of(task, parallelism, GROUPS) for task in range(parallelism))
        return [task for task, own in enumerate(owners) if group in own]

    def _context(
        self,
        subtask: int,
        parallelism: int,
        given: OperatorRestored | None,
        backends: Backends,
    ) -> OperatorContext:
        info = TaskInfo("job", "vertex", subtask, parallelism, GROUPS)
        within = replace(self.clock.context(), task=info, restored=given, backends=backends)
        key_type, record_type = self._types
        uid = f"op-{subtask}-{id(self)}"
        return replace(within, uid=uid, key_type=key_type, record_type=record_type)


class SeenOutput(KeptOutput):
    """Writes records, with their times and their tags, to a list that several share."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self._seen = seen

    def collect(self, bundle: Bundle) -> None:
        self._note(None, bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self._note(tag, bundle)

    def _note(self, tag: str | None, bundle: Bundle) -> None:
        times = bundle.timestamps or [None] * len(bundle.records)
        self._seen += [(tag, *row) for row in zip(bundle.records, times, strict=True)]
