"""The loops of one process function that is inlined, compiled when they are first needed.

Which of them a bundle takes depends on whether its records have times, and on the states that the
function has put into its attributes: only plain value states are inlined as well.
"""

from collections.abc import Callable, Sequence
from functools import partial

from headgate.base.elements import Bundle, Key, Record
from headgate.base.fields import RecordFields
from headgate.core.chain.collector import Collector, TimedContext
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeySelection
from headgate.core.inlining.apart import ApartLoop, ApartLoops, FieldForm, apart_loop
from headgate.core.inlining.bodies import InlineBody
from headgate.core.inlining.loops import Loop, body_of, process_loop
from headgate.core.inlining.made_records import RecordMakers
from headgate.core.inlining.state_calls import state_calls
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory_states import PlainValue
from headgate.core.state.tables import Entries


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
        self._states = state_calls(call, body) if self._is_keyed else None
        self._loops: dict[tuple[bool, bool], Loop | None] = {}
        self._apart = {
            (timed, inlines_states): ApartLoops(partial(self._made_apart, timed, inlines_states))
            for timed in (False, True)
            for inlines_states in (False, True)
        }

    def run(self, bundle: Bundle) -> bool:
        """Process a bundle; False: it has to be processed by calls."""
        if not self._makers.hold():
            return False
        times, fields = bundle.timestamps, bundle.fields
        entries = self._entries()
        kind = times is not None, entries is not None
        beside = [] if times is None else [times]
        found = None if fields is None else self._apart[kind].loop_for(fields)
        if fields is not None and found is not None:
            apart, loop = found
            lists = apart.arguments(fields, *beside)
            self._records_come(fields.count, partial(_items, fields, apart.key))
        elif (over_records := self._loop(*kind)) is not None:
            loop = over_records
            lists = [bundle.records, *self._keys(bundle.records), *beside]
        else:
            return False
        self._context.time_ms = None
        run = partial(self._run, loop, lists, entries or ())
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

    def _entries(self) -> list[Entries] | None:
        """Of the states; None: they are called."""
        if self._states is None:
            return None
        owner = getattr(self._call, "__self__", None)
        found = [_attribute(owner, name) for name in self._states.names]
        entries = [state.entries for state in found if type(state) is PlainValue]
        return entries if len(entries) == len(found) else None

    def _loop(self, timed: bool, inlines_states: bool) -> Loop | None:
        kind = timed, inlines_states
        if kind not in self._loops:
            self._loops[kind] = self._made_loop(timed, inlines_states)
        return self._loops[kind]

    def _made_apart(
        self, timed: bool, inlines_states: bool, form: FieldForm
    ) -> tuple[ApartLoop, Loop] | None:
        body = self._body
        apart = apart_loop(body, body.parameters[-2], form, self._part, all_places=False)
        loop = None if apart is None else self._made_loop(timed, inlines_states, apart)
        return None if apart is None or loop is None else (apart, loop)

    def _made_loop(
        self, timed: bool, inlines_states: bool, apart: ApartLoop | None = None
    ) -> Loop | None:
        return process_loop(
            self._call,
            self._body,
            self._makers,
            self._given,
            by_value=self._collector.copies,
            keyed=self._is_keyed,
            timed=timed,
            states=self._states if inlines_states else None,
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
