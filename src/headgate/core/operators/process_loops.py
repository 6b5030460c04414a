"""The loops of one process function that is inlined, compiled when they are first needed.

Which of them a bundle takes depends on whether its records have times, and on the states that the
function has put into its attributes: only plain value states are inlined as well.
"""

from collections.abc import Sequence
from functools import partial

from headgate.base.elements import Bundle, Key, Record
from headgate.core.chain.collector import Collector, TimedContext
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeySelection, see
from headgate.core.inlining.bodies import InlineBody
from headgate.core.inlining.loops import Loop, body_of, process_loop
from headgate.core.inlining.state_calls import StateCalls, state_calls
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
        self._collector = collector
        self._context = context
        self._is_keyed = cursor is not None
        self._selection = selection
        self._part = None if selection is None else selection.part
        self._given = {**collector.loop_parts(), "CONTEXT": context, "cursor": cursor}
        if selection is not None:
            self._given |= {"see": see, "key_of": selection.key}
        self._states = state_calls(call, body) if self._is_keyed else None
        self._loops: dict[tuple[bool, bool], Loop | None] = {}

    def run(self, bundle: Bundle) -> bool:
        """Process a bundle; False: it has to be processed by calls."""
        timed = bundle.timestamps is not None
        entries = self._entries()
        loop = self._loop(timed, entries is not None)
        if loop is None:
            return False
        lists = [bundle.records, self._keys(bundle.records), bundle.timestamps]
        lists = [items for items in lists if items is not None]
        self._context.time_ms = None
        self._collector.sweep_loop(partial(self._run, loop, lists, entries or ()), timed)
        return True

    def _keys(self, records: list[Record]) -> list[Key] | None:
        """None: the loop takes them itself, or there are none."""
        if self._selection is None:
            return None
        if self._part is None:
            return self._selection.keys(records)
        self._selection.records_come(len(records))
        return None

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
            states: StateCalls | None = self._states if inlines_states else None
            self._loops[kind] = process_loop(
                self._call,
                self._body,
                self._given,
                by_value=self._collector.copies,
                keyed=self._is_keyed,
                timed=timed,
                states=states,
                part=self._part,
            )
        return self._loops[kind]


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
