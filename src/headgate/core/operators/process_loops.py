"""The loops of one process function that is inlined, compiled when they are first needed.

Which of them a bundle takes depends on whether its records have times, and on the states that the
function has put into its attributes: those in memory are inlined as well.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from headgate.base.elements import Bundle, Key, Record
from headgate.base.fields import RecordFields
from headgate.core.chain.collector import Collector, TimedContext
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeySelection
from headgate.core.inlining.apart import ApartLoop, ApartLoops, FieldForm, apart_loop
from headgate.core.inlining.bodies import InlineBody
from headgate.core.inlining.loops import Loop, body_of, process_loop
from headgate.core.inlining.made_records import RecordMakers
from headgate.core.inlining.state_calls import (
    InlineState,
    StateCalls,
    inline_state,
    state_attributes,
)
from headgate.core.state.cursor import Cursor
from headgate.core.state.tables import Entries

LoopKind: TypeAlias = tuple[bool, tuple[tuple[str, InlineState], ...]]
"""Whether records have times, and the states that are inlined, by attribute."""

MOST_KINDS: Final = 16
"""A function that has other states in its attributes again and again has its loops made anew."""


class ProcessLoops:
    """Made by ``process_loops``; cursor and selection are None on a stream without keys."""

    def __init__(
        self,
        call: object,
        body: InlineBody,
        collector: Collector,
        context: TimedContext,
        cursor: Cursor | None,
        selection: KeySelection | None,
    ) -> None:
        self._call = call
        self._body = body
        self._makers = RecordMakers(body.function)
        self._collector = collector
        self._context = context
        self._is_keyed = cursor is not None
        self._selection = selection
        self._part = None if selection is None else selection.part
        self._given = {**collector.loop_parts(), "CONTEXT": context, "cursor": cursor}
        if selection is not None:
            self._given |= {"see": selection.see, "key_of": selection.key}
        self._attributes = state_attributes(call, body) if self._is_keyed else []
        self._loops: dict[LoopKind, Loop | None] = {}
        self._apart: dict[LoopKind, ApartLoops[tuple[ApartLoop, Loop]]] = {}

    def run(self, bundle: Bundle) -> bool:
        """Process a bundle; False: it has to be processed by calls."""
        if not self._makers.hold():
            return False
        times, fields = bundle.timestamps, bundle.fields
        states = self._inline_states()
        kind = times is not None, tuple((name, state) for name, state, _ in states)
        beside = [] if times is None else [times]
        found = None if fields is None else self._apart_loops(kind).loop_for(fields)
        if fields is not None and found is not None:
            apart, loop = found
            lists = apart.arguments(fields, *beside)
            self._records_come(fields.count, partial(_items, fields, apart.key))
        elif (over_records := self._loop(kind)) is not None:
            loop = over_records
            lists = [bundle.records, *self._keys(bundle.records), *beside]
        else:
            return False
        self._context.time_ms = None
        run = partial(self._run, loop, lists, [entries for _, _, entries in states])
        self._collector.sweep_loop(run, times is not None)
        return True

    def _keys(self, records: list[Record]) -> list[list[Key]]:
        """A list of them; none if the loop takes them itself, or there are none."""
        if self._selection is not None and self._part is None:
            return [self._selection.keys(records)]
        if self._selection is not None:
            self._records_come(len(records), partial(self._selection.taken, records))
        return []

    def _records_come(self, count: int, keys: Callable[[], list[Key]]) -> None:
        if self._selection is not None:
            self._selection.records_come(count, keys)

    def _run(
        self, loop: Loop, lists: Sequence[object], entries: Sequence[Entries], sent: list[object]
    ) -> None:
        try:
            loop(*lists, sent, *entries)
        except StopIteration as error:
            if not self._body.yields:
                raise
            failed = RuntimeError("generator raised StopIteration")  # as a generator does
            raise failed.with_traceback(error.__traceback__) from error

    def _inline_states(self) -> list[tuple[str, InlineState, Entries]]:
        """The states that are not called, with their attributes."""
        owner = getattr(self._call, "__self__", None)
        states = []
        for name in self._attributes:
            found = inline_state(_attribute(owner, name))
            if found is not None:
                states.append((name, *found))
        return states

    def _apart_loops(self, kind: LoopKind) -> ApartLoops[tuple[ApartLoop, Loop]]:
        if kind not in self._apart:
            self._forget_some()
            self._apart[kind] = ApartLoops(partial(self._made_apart, kind))
        return self._apart[kind]

    def _loop(self, kind: LoopKind) -> Loop | None:
        if kind not in self._loops:
            self._forget_some()
            self._loops[kind] = self._made_loop(kind)
        return self._loops[kind]

    def _forget_some(self) -> None:
        if len(self._loops) + len(self._apart) >= MOST_KINDS:
            self._loops.clear()
            self._apart.clear()

    def _made_apart(self, kind: LoopKind, form: FieldForm) -> tuple[ApartLoop, Loop] | None:
        body = self._body
        apart = apart_loop(body, body.parameters[-2], form, self._part, all_places=False)
        loop = None if apart is None else self._made_loop(kind, apart)
        return None if apart is None or loop is None else (apart, loop)

    def _made_loop(self, kind: LoopKind, apart: ApartLoop | None = None) -> Loop | None:
        timed, states = kind
        return process_loop(
            self._call,
            self._body,
            self._makers,
            self._given,
            by_value=self._collector.copies,
            keyed=self._is_keyed,
            timed=timed,
            states=StateCalls(self._body.parameters[0], dict(states)) if states else None,
            part=self._part,
            apart=apart,
        )


def _items(fields: RecordFields, place: int) -> list[Record]:
    items = fields.places[place]
    return items if type(items) is list else [items[0]]


def _attribute(owner: object, name: str) -> object:
    """An attribute that stays the same until it is assigned; None: code finds it, or none does."""
    kind = type(owner)
    is_found_by_code = kind.__getattribute__ is not object.__getattribute__ or any(
        name in base.__dict__ and hasattr(base.__dict__[name], "__get__") for base in kind.__mro__
    )
    return None if is_found_by_code else getattr(owner, "__dict__", {}).get(name)


def process_loops(
    call: object,
    context: OperatorContext,
    collector: Collector,
    process_context: TimedContext,
    cursor: Cursor | None = None,
    selection: KeySelection | None = None,
) -> ProcessLoops | None:
    """None: the function cannot be inlined."""
    body = body_of(call, 2, context.definitions)
    if body is None:
        return None
    return ProcessLoops(call, body, collector, process_context, cursor, selection)
