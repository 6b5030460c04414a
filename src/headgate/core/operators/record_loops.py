"""The loops of one user function over the records of bundles, compiled when they are first needed.

A function is written into the loop if its source allows, else the loop calls it; both do the same.
Which loop a bundle takes depends on whether its records have times or come taken apart, and on the
states that the function has put into its attributes: those in memory are inlined as well. Law: of
a record that fails under an error policy nothing is sent, but for whole pieces, and the loop goes
on with the next one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import length_hint
from typing import Final, NamedTuple, TypeAlias

from headgate.base.elements import Bundle, Key, Record, Times
from headgate.base.fields import FieldShape, RecordFields, Same
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import LOOKS, Collector, TimedContext, look_parts
from headgate.core.chain.keyed_context import KeySelection
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.outputs import Trail, takes_fields, trail_from
from headgate.core.chain.user_function import iterable
from headgate.core.loops.apart import ApartLoop, ApartLoops, FieldForm, apart_loop
from headgate.core.loops.bodies import InlineBody
from headgate.core.loops.emissions import NOTHING_FOLLOWS, Following
from headgate.core.loops.loops import (
    Gives,
    Loop,
    LoopWay,
    body_of,
    called_body,
    can_emit,
    emitting_loop,
    emitting_places,
    leaving_places,
)
from headgate.core.loops.made_records import RecordMakers, written_down
from headgate.core.loops.own_methods import found_by_code
from headgate.core.loops.state_calls import (
    InlineState,
    PlainState,
    StateCalls,
    inline_state,
    state_attributes,
)
from headgate.core.loops.state_uses import HarmlessNames
from headgate.core.state.cursor import Cursor
from headgate.core.state.tables import Entries


class LoopKind(NamedTuple):
    """What tells the loops of one function apart."""

    is_inlined: bool
    by_value: bool
    timed: bool
    states: tuple[tuple[str, InlineState], ...]
    """Methods that are inlined, by attribute."""
    follows: bool = False
    """The loop also contains the steps downstream of the function."""
    parts: bool = False
    """What it gives leaves as fields."""


Leaving: TypeAlias = tuple[FieldShape, list[Same | None]]
"""The shape of what leaves a loop as fields, and by place what is the same in all records."""

MOST_PLACES: Final = 4
"""A function that emits in more places has no steps in its loop: they stand in each of these."""

MOST_KINDS: Final = 16
"""A function that has other states in its attributes again and again has its loops made anew."""


class RecordLoops:
    """Runs a function for each record of a bundle; a collector takes what it emits."""

    def __init__(
        self,
        call: Callable[..., Record],
        who: str,
        context: OperatorContext,
        collector: Collector,
        *,
        passed: TimedContext | None = None,
        cursor: Cursor | None = None,
        selection: KeySelection | None = None,
        failures: RecordFailures | None = None,
        gives: Gives = Gives.VALUES,
        takes_none: bool = True,
        is_free: Callable[[Bundle], bool] | None = None,
    ) -> None:
        """``who`` must return an iterable, if it gives values.

        ``passed``: what the function takes after its record. ``cursor``, ``selection``: of a
        keyed stream. ``takes_none``: the function may return None for no values. ``is_free``:
        whether what the function gives for these records is sent as it is.
        """
        self._call = call
        self._collector = collector
        self._passed = passed
        self._selection = selection
        self._form = None if selection is None or failures is not None else selection.form
        self._part = None if self._form is None else self._form.part
        self._streak = None if failures is None else failures.streak()
        self._key_streak = None if failures is None else failures.streak()
        self._is_free = is_free
        self._way = LoopWay(
            by_value=collector.copies or (failures is not None and gives is Gives.VALUES),
            keyed=selection is not None,
            timed=False,
            has_context=passed is not None,
            gives=gives,
            takes_none=takes_none,
            skips_failures=failures is not None,
        )
        self._keeps_times = gives is Gives.VALUE and failures is None
        """Each record has one result, whose time is that of the record."""
        self._given = {
            **collector.loop_parts(),
            "CONTEXT": passed,
            "call": call,
            "cursor": cursor,
            "failed": self._failed,
            "iterator": partial(_iterator, who),
            "look_parts": look_parts,
            "send_tagged": self._send_tagged,
        }
        if selection is not None:
            self._given |= {"see": selection.see, "key_of": selection.key}
        body = body_of(call, 1 if passed is None else 2, context.definitions)
        self._body = body if body is not None and can_emit(body, self._way) else None
        parameters = ("_hg_record",) if passed is None else ("_hg_record", "_hg_context")
        self._called = called_body(gives, parameters)
        self._makers = RecordMakers((self._body or self._called).function)
        self._written = None if self._body is None else written_down(self._body, self._makers)
        """The body for loops in which records need not be made where it makes them."""
        self._harmless = HarmlessNames(self._body or self._called)
        self._attributes = (
            [] if self._body is None or not self._way.keyed else state_attributes(call, self._body)
        )
        self._known: dict[str, tuple[object, tuple[InlineState, PlainState] | None]] = {}
        """The state that was last in an attribute, and how it is inlined."""
        self._trail = Trail(collector.output)
        if self._streak is None and emitting_places(self._body or self._called) <= MOST_PLACES:
            self._trail = trail_from(collector.output)
        steps = self._trail.steps
        self._has_maps = not all(step.is_filter for step in steps)
        self._keeps_count = self._keeps_times and not any(step.is_filter for step in steps)
        self._refused: Sequence[int] = ()
        self._sides = Collector(collector.output, collector.copies)
        self._end = collector
        if steps:
            self._end = Collector(self._trail.output, collector.copies, has_sides=False)
        self._leaving: dict[tuple[bool, bool], Leaving | None] = {}
        self._loops: dict[LoopKind, Loop] = {}
        self._apart: dict[LoopKind, ApartLoops[tuple[ApartLoop, Loop]]] = {}
        self._at_hand = Bundle([])
        """Under an error policy: where the loop is."""

    @property
    def body(self) -> InlineBody | None:
        """What stands in the loops; None: the function is called."""
        return self._body

    @property
    def is_inlined(self) -> bool:
        """Whether the body of the function stands in the loops; otherwise they call it."""
        return self._body is not None and self._makers.hold() and self._harmless.hold()

    def run(self, bundle: Bundle) -> None:
        """Process a bundle."""
        lists: Sequence[object]
        is_inlined = self.is_inlined
        states = self._inline_states() if is_inlined else []
        names = tuple((name, state) for name, state, _ in states)
        follows = bool(self._trail.steps) and self._trail.holds()
        keeps_times = self._keeps_count if follows else self._keeps_times
        timed = bundle.timestamps is not None and not keeps_times
        leaving = self._leaving_fields(is_inlined, follows)
        kind = LoopKind(is_inlined, self._way.by_value, timed, names, follows, leaving is not None)
        found = self._over_fields(kind, bundle)
        if found is not None:
            loop, lists = found
        else:
            bundle, keys = self._keyed(bundle)
            if (
                self._is_free is not None
                and kind.by_value
                and not (follows and self._has_maps)
                and self._is_free(bundle)
            ):
                kind = kind._replace(by_value=False)
            loop = self._loop(kind)
            lists = [bundle.records, *keys, *_beside(kind, bundle)]
        if self._passed is not None:
            self._passed.time_ms = None
        entries = [entries for _, _, entries in states]
        times = bundle.timestamps if keeps_times else None
        end = self._end if follows else self._collector
        if self._streak is not None:
            self._at_hand = bundle
            end.sweep_loop(partial(self._run, loop, lists, entries), kind.timed)
            self._streak.ended(bundle)
            self._at_hand = Bundle([])
            return
        before = end.sent
        if leaving is not None:
            self._run_apart(loop, lists, entries, leaving, end, kind.timed, times)
        else:
            end.sweep_loop(partial(self._run, loop, lists, entries), kind.timed, times)
        if follows:
            self._trail.count(end.sent - before, self._refused)
        self._sides.flush()

    def _run_apart(
        self,
        loop: Loop,
        lists: Sequence[object],
        entries: Sequence[Entries],
        leaving: Leaving,
        end: Collector,
        timed: bool,
        times: Times,
    ) -> None:
        def run(sent: list[Record], *places: list[Record]) -> None:
            self._run(loop, lists, [*places, *entries], sent)

        end.sweep_fields(run, *leaving, timed, times)

    def _leaving_fields(self, is_inlined: bool, follows: bool) -> Leaving | None:
        """What leaves the loop, if that is taken apart by who takes it."""
        if self._streak is not None:
            return None
        form = is_inlined, follows
        if form not in self._leaving:
            body = self._written if is_inlined else None
            steps = self._trail.steps if follows else ()
            self._leaving[form] = leaving_places(
                body or self._called, self._makers, self._way, steps
            )
        leaving = self._leaving[form]
        if leaving is None:
            return None
        output = self._trail.output if follows else self._collector.output
        return leaving if takes_fields(output, leaving[0], len(leaving[1])) else None

    def _send_tagged(self, value: Record, time_ms: int | None) -> None:
        self._sides.take([value], time_ms)

    def _over_fields(self, kind: LoopKind, bundle: Bundle) -> tuple[Loop, Sequence[object]] | None:
        """The loop over records that are taken apart, and its lists; None: it needs records."""
        fields, selection = bundle.fields, self._selection
        if fields is None or selection is None or self._form is None or not kind.is_inlined:
            return None
        if self._way.gives is Gives.VERDICT:
            return None  # the records themselves are sent on
        found = self._apart_loops(kind).loop_for(fields)
        if found is None:
            return None
        apart, loop = found
        if apart.key is not None:
            selection.records_come(fields.count, partial(_items, fields, apart.key))
            return loop, apart.arguments(fields, *_beside(kind, bundle))
        keys = selection.keys_of(fields)
        return (
            None if keys is None else (loop, apart.arguments(fields, keys, *_beside(kind, bundle)))
        )

    def _keyed(self, bundle: Bundle) -> tuple[Bundle, list[list[Key]]]:
        """The records, and the list of their keys if the loop does not take them itself."""
        selection = self._selection
        if selection is None:
            return bundle, []
        if self._key_streak is not None:
            bundle, keys = selection.keyed(bundle, self._key_streak)
            return bundle, [keys]
        records = bundle.records
        if self._part is None:
            return bundle, [selection.keys(records)]
        selection.records_come(len(records), partial(selection.taken, records))
        return bundle, []

    def _run(
        self, loop: Loop, lists: Sequence[object], more: Sequence[object], sent: list[object]
    ) -> None:
        try:
            self._refused = loop(*lists, sent, *more) or ()
        except StopIteration as error:
            raised = self._raised(error)
            if raised is error:
                raise
            raise raised from error

    def _raised(self, error: Exception) -> Exception:
        """What a generator makes of an error that is raised within it."""
        if self._body is None or not self._body.yields or not isinstance(error, StopIteration):
            return error
        failed = RuntimeError("generator raised StopIteration")
        failed.__cause__ = error
        return failed.with_traceback(error.__traceback__)

    def _failed(self, error: Exception, source: Iterator[Record], length: int) -> None:
        """The record at which the source stands has failed; ``length``: of what was sent before."""
        assert self._streak is not None
        self._collector.take_back_to(length)
        place = len(self._at_hand) - length_hint(source) - 1
        self._streak.failed_at(self._raised(error), self._at_hand, place)

    def _inline_states(self) -> list[tuple[str, InlineState, Entries]]:
        """The states that are not called, with their attributes."""
        owner = getattr(self._call, "__self__", None)
        states = []
        for name in self._attributes:
            state = _attribute(owner, name)
            if name not in self._known or self._known[name][0] is not state:
                self._known[name] = state, inline_state(state)
            found = self._known[name][1]
            if found is not None:
                states.append((name, found[0], found[1].entries))
        return states

    def _apart_loops(self, kind: LoopKind) -> ApartLoops[tuple[ApartLoop, Loop]]:
        if kind not in self._apart:
            self._forget_some()
            self._apart[kind] = ApartLoops(partial(self._made_apart, kind))
        return self._apart[kind]

    def _loop(self, kind: LoopKind) -> Loop:
        if kind not in self._loops:
            self._forget_some()
            self._loops[kind] = self._made_loop(kind)
        return self._loops[kind]

    def _forget_some(self) -> None:
        if len(self._loops) + len(self._apart) >= MOST_KINDS:
            self._loops.clear()
            self._apart.clear()

    def _made_apart(self, kind: LoopKind, form: FieldForm) -> tuple[ApartLoop, Loop] | None:
        body = self._body_for(kind)
        assert body is not None, "only functions that are inlined read fields"
        record = body.parameters[-2 if self._way.has_context else -1]
        assert self._form is not None
        apart = apart_loop(body, record, form, self._form, all_places=False)
        return None if apart is None else (apart, self._made_loop(kind, apart))

    def _body_for(self, kind: LoopKind) -> InlineBody | None:
        return self._written if kind.parts or kind.follows else self._body

    def _made_loop(self, kind: LoopKind, apart: ApartLoop | None = None) -> Loop:
        call, body = (self._call, self._body_for(kind)) if kind.is_inlined else (None, self._called)
        assert body is not None
        states = None
        if kind.states:
            context = body.parameters[-1] if self._way.has_context else None
            owner = getattr(call, "__self__", None)
            by_code = found_by_code(owner, dir(type(owner)))
            states = StateCalls(body, dict(kind.states), context, self._harmless.names, by_code)
        leaving = self._leaving_fields(kind.is_inlined, kind.follows) if kind.parts else None
        following = NOTHING_FOLLOWS
        if kind.follows or leaving is not None:
            steps = self._trail.steps if kind.follows else ()
            lists = None if leaving is None else lists_in(leaving[1])
            following = Following(steps, lists, self._collector.has_sides)
        loop = emitting_loop(
            call,
            body,
            self._makers,
            self._given | (self._end.loop_parts() if kind.follows else {}),
            way=replace(self._way, by_value=kind.by_value, timed=kind.timed),
            states=states,
            part=self._part,
            apart=apart,
            following=following,
        )
        assert loop is not None, "a body that was found is there"
        return loop


class ResultLoop:
    """A function's results for values of which there is no stream, made the receiver's own."""

    def __init__(self, call: Callable[[Record], Record], copies: bool = True) -> None:
        body = called_body(Gives.VALUE)
        loop = emitting_loop(
            None,
            body,
            RecordMakers(body.function),
            {**LOOKS, "call": call},
            way=LoopWay(
                by_value=copies,
                keyed=False,
                timed=False,
                has_context=False,
                gives=Gives.VALUE,
                owns_records=False,
            ),
        )
        assert loop is not None, "it is our own"
        self._loop = loop

    def results(self, values: Iterable[Record]) -> list[Record]:
        """One for each."""
        found: list[Record] = []
        self._loop(iter(values), found)  # no list: an error is not about a record of a bundle
        return found

    def add_results(self, values: Iterator[Record], found: list[Record]) -> None:
        """Add one for each; after an error the values go on after the one that failed."""
        self._loop(values, found)


def lists_in(same: Sequence[Same | None]) -> tuple[int, ...]:
    """The places that have lists."""
    return tuple(number for number, place in enumerate(same) if place is None)


def _beside(kind: LoopKind, bundle: Bundle) -> list[list[int | None]]:
    return [bundle.timestamps] if kind.timed and bundle.timestamps is not None else []


def _iterator(who: str, found: Record) -> Iterator[Record]:
    return iter(iterable(found, who))


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
