"""What every operator on a keyed stream has beside its function: keys, state, cursor and timers.

Law of the context: a restored one continues where the old ones were, in event time too; otherwise a
late record would revive windows that had fired and are gone. Of several old tasks the one with the
lowest event time counts. Every key is hashable (one that is not is frozen), and equal keys stay
equal. An error of a key selector names the operator on the keyed stream and the selector.

Law of the timers: a timer fires once for each time, key and namespace. An event-time timer that is
not later than the watermark fires when the watermark next moves; processing-time timers that are
pending at the end of the input never fire, but those of a batch do at the end of their key. After a
restore event time continues where it was: earlier watermarks, which sources emit again, change
nothing.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import index, itemgetter, ne
from typing import Final

from headgate.base.checkpoints import OPERATOR, StateShape
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Key, Record
from headgate.base.errors import raise_user_error
from headgate.base.fields import RecordFields
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import FailureStreak, attempt, bundle_without
from headgate.core.chain.snapshots import restored_parts
from headgate.core.state.backend import KeyedBackend, Sweep
from headgate.core.state.cursor import PLAIN, Namespace, seen
from headgate.core.state.key_taking import KeyForm, key_form, key_taker
from headgate.core.state.migration import Change, shape_of
from headgate.core.state.opening import StateOpener
from headgate.core.state.reading import StateReader
from headgate.functions.context import TimeDomain, TimerService

KEYS: Final = "keys"
"""Under which a checkpoint notes the type of the keys."""

EVENT_TIME: Final = "event time"
"""The name of the context's part of the state without keys."""

KNOWN_KEYS: Final = 65_536
"""So many keys are remembered as hashable."""

_TIME: Final = struct.Struct("<q")

Fire = Callable[[int, TimeDomain], None]
"""Called with the timer's time; the cursor stands at its key and namespace."""


class InternalTimerService(TimerService):
    """The timers of one operator on a keyed stream."""

    def __init__(
        self,
        backend: KeyedBackend,
        context: OperatorContext,
        fire: Fire,
        fired: Callable[[], None] = lambda: None,
    ) -> None:
        """``fired`` is called after timers of processing time, which come between the bundles."""
        self.watermark_ms = MIN_WATERMARK_MS
        self._restored_ms = MIN_WATERMARK_MS - 1
        """Event time had come to here before the restore."""
        self._cursor = backend.cursor
        self._event = backend.event_timers
        self._processing = backend.processing_timers
        self._context = context
        self._fire = fire
        self._fired = fired
        self._awaited_ms: int | None = None
        """When the mail comes that looks for timers of processing time; None: no mail is sent."""
        self._closed = False

    def current_processing_time(self) -> int:
        return self._context.now_ms()

    def current_watermark(self) -> int:
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        cursor = self._cursor
        time_ms = timestamp if type(timestamp) is int else whole(timestamp)
        self._event.register(time_ms, cursor.key, cursor.namespace)

    def register_processing_time_timer(self, timestamp: int) -> None:
        cursor = self._cursor
        time_ms = timestamp if type(timestamp) is int else whole(timestamp)
        self._processing.register(time_ms, cursor.key, cursor.namespace)
        if self._awaited_ms is None or time_ms < self._awaited_ms:
            self._await(time_ms)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event.delete(timestamp, self._cursor.key, self._cursor.namespace)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing.delete(timestamp, self._cursor.key, self._cursor.namespace)

    def watermark_advanced(self, watermark_ms: int) -> None:
        """Fire what is due in event time."""
        if watermark_ms <= self._restored_ms:
            return
        self.watermark_ms = watermark_ms
        for time_ms, key, namespace in self._event.due(watermark_ms):
            self._fire_one(time_ms, key, namespace, TimeDomain.EVENT_TIME)

    def key_ended(self) -> None:
        """Batch: all that is pending fires, as at the end of time; then time begins anew.

        A timer of processing time that another one of its kind has set does not fire: one that
        always sets the next would never end.
        """
        self.watermark_advanced(MAX_WATERMARK_MS)
        queue = self._processing
        for time_ms, key, namespace in sorted(queue.items(), key=itemgetter(0)):
            if queue.has(time_ms, key, namespace):
                queue.delete(time_ms, key, namespace)
                self._fire_one(time_ms, key, namespace, TimeDomain.PROCESSING_TIME)
        self.watermark_advanced(MAX_WATERMARK_MS)
        queue.clear()
        self.watermark_ms = MIN_WATERMARK_MS

    def restored(self, watermark_ms: int | None = None) -> None:
        """Timers came out of a snapshot: those of processing time need a call.

        ``watermark_ms``: where event time was then; None: it begins anew.
        """
        if watermark_ms is not None and watermark_ms > MIN_WATERMARK_MS:
            self.watermark_ms = self._restored_ms = watermark_ms
        self._await_next()

    def close(self) -> None:
        """No timer of processing time fires any more."""
        self._closed = True

    def _await_next(self) -> None:
        first = self._processing.next_ms
        if first is not None and (self._awaited_ms is None or first < self._awaited_ms):
            self._await(first)

    def _await(self, time_ms: int) -> None:
        """One mail for the earliest timer; a mail that an earlier one has replaced does nothing."""
        self._awaited_ms = time_ms
        delay_ms = max(0, time_ms - self._context.now_ms())
        self._context.later(delay_ms, partial(self._fire_due, time_ms))

    def _fire_due(self, awaited_ms: int) -> None:
        """Fire what is due in processing time; called as a mail, perhaps a little early."""
        if self._closed or awaited_ms != self._awaited_ms:
            return
        self._awaited_ms = None
        for time_ms, key, namespace in self._processing.due(self._context.now_ms()):
            self._fire_one(time_ms, key, namespace, TimeDomain.PROCESSING_TIME)
        self._fired()
        self._await_next()

    def _fire_one(self, time_ms: int, key: Key, namespace: Namespace, domain: TimeDomain) -> None:
        cursor = self._cursor
        cursor.key, cursor.namespace = key, namespace
        self._fire(time_ms, domain)
        cursor.namespace = None


def whole(timestamp: int) -> int:
    """The time of a timer that is no plain int, if it is a whole number nevertheless."""
    try:
        return index(timestamp)
    except TypeError:
        raise TypeError(
            f"a timer was given the time {timestamp!r}; give whole milliseconds since 1970 (int)"
        ) from None


class KeyedContext:
    """Made in ``Operator.open``, closed in ``Operator.close``.

    The operator sets ``cursor.key`` for each record, calls ``timers.watermark_advanced`` for each
    watermark before it hands it on, and is called back by ``fire`` for each timer, and by ``fired``
    when those of processing time that were due have fired. Without ``fire`` it has no timers.
    """

    def __init__(
        self,
        context: OperatorContext,
        fire: Fire | None = None,
        fired: Callable[[], None] = lambda: None,
    ) -> None:
        watermark_ms = _restored_watermark(context)  # first: if it fails there is nothing to close
        self.backend = context.keyed_backend()
        self.cursor = self.backend.cursor
        self.shapes = context.shapes
        self._compare_keys(context.key_type)
        self.opener = StateOpener(self.backend, context.now_ms, shapes=self.shapes)
        self.reader = StateReader(self.backend, self.shapes, self.opener, context.now_ms)
        self.timers = InternalTimerService(self.backend, context, fire or _no_timers, fired)
        self._is_timed = fire is not None
        self.timers.restored(watermark_ms)

    def _compare_keys(self, key_type: object) -> None:
        """Keys are never rewritten: state and timers would be at another one, or another task."""
        shape = StateShape(KEYS, "key", (shape_of(key_type),), OPERATOR)
        before = self.shapes.before(KEYS, OPERATOR)
        undeclared = not before or before[0].types == (None,)
        try:
            if self.shapes.compare(shape) is Change.REWRITTEN and not undeclared:
                self.shapes.refuse(shape, str(before[0]))
            self.shapes.enter(shape)
        except BaseException:
            self.backend.close()
            raise

    def plain_parts(self) -> dict[str, bytes]:
        """State beside keyed state: event time, unless it has ended; then a new run begins anew."""
        watermark_ms = self.timers.watermark_ms
        if not self._is_timed or watermark_ms == MAX_WATERMARK_MS:
            return {}
        return {EVENT_TIME: _TIME.pack(watermark_ms)}

    def key_ended(self) -> None:
        """Batch: the timers of the key at hand fire, and it is forgotten; time begins anew."""
        self.timers.key_ended()
        self.backend.forget_key()

    def close(self) -> None:
        """Give back the state. Idempotent."""
        self.timers.close()
        self.backend.close()


def _restored_watermark(context: OperatorContext) -> int | None:
    parts = restored_parts(context.restored, EVENT_TIME)
    return min((_TIME.unpack(part)[0] for part in parts if part is not None), default=None)


def _no_timers(time_ms: int, domain: TimeDomain) -> None:
    raise AssertionError("a timer fired in an operator that registers none")


class KeySelection:
    """Takes the keys of the records of one input; the loop over records only sets ``cursor.key``.

    ``sweeps`` are those of the backend: state is cleaned up when the records of a bundle arrive.
    """

    __slots__ = ("_check", "_key_of", "_known", "_operator", "_sweeps", "_take", "form")

    def __init__(
        self,
        key_of: Callable[[Record], Key],
        operator: str,
        sweeps: Sequence[Sweep] = (),
        key_type: object = None,
    ) -> None:
        self._key_of = key_of
        self._take = key_taker(key_of)
        self.form: KeyForm | None = key_form(key_of)
        """What a key is taken from; None: the selector has to be called."""
        self._operator = operator
        self._check = key_check(key_type)
        self._sweeps = sweeps
        self._known: set[Key] = set()
        """Keys of rare kinds that are taken as they are; to find that out takes long."""

    def keys(self, records: list[Record]) -> list[Key]:
        """A key for each record."""
        for sweep in self._sweeps:
            sweep(len(records))
        try:
            return self._hashable(self._take(records))
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._operator, "when the key of a record was selected")

    def keys_of(self, fields: RecordFields) -> list[Key] | None:
        """A key for each record that is taken apart; None: the selector has to look at records."""
        keys = None if self.form is None else self.form.of_fields(fields)
        if keys is None:
            return None
        for sweep in self._sweeps:
            sweep(fields.count)
        try:
            return self._hashable(keys if type(keys) is list else [keys[0]] * fields.count)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._operator, "when the key of a record was selected")

    def records_come(self, count: int, keys: Callable[[], list[Key]]) -> None:
        """So many records are processed by a loop that takes their keys itself."""
        for sweep in self._sweeps:
            sweep(count)
        if self._check is not None:
            try:
                self._check(keys())
            except (Exception, SystemExit) as error:
                raise_user_error(error, self._operator, "when the key of a record was selected")

    def taken(self, records: list[Record]) -> list[Key]:
        """The keys as the selector returns them."""
        return self._take(records)

    def key(self, record: Record) -> Key:
        """The key of a record, which a loop could not take; most likely the selector fails."""
        try:
            return self._key_of(record)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._operator, "when the key of a record was selected")

    def keyed(self, bundle: Bundle, streak: FailureStreak) -> tuple[Bundle, list[Key]]:
        """The records that have a key, and their keys; ``streak`` takes the others."""
        for sweep in self._sweeps:
            sweep(len(bundle.records))
        key_of = self._key_of
        try:
            keys = self._hashable(self._take(bundle.records))
            streak.passed()
            return bundle, keys
        except Exception:  # each alone: a selector may be called again, others have called it too
            keys, failed = attempt(
                iter(bundle.records),
                lambda records: (self._seen(key_of(record)) for record in records),
                bundle,
                streak,
            )
            return bundle_without(bundle, failed), keys

    def see(self, key: Key) -> tuple[Key, type | None]:
        """The key as a cursor takes it, and its kind if all keys of that kind are taken so."""
        kind = type(key)
        if kind in PLAIN:
            return seen(key), None if kind is float else kind
        return self._seen(key), None

    def _hashable(self, keys: list[Key]) -> list[Key]:
        """The keys, frozen where no dictionary finds them by what they hold."""
        if self._check is not None:
            self._check(keys)  # all of them: one that equals a known key may be of another type
        kinds = set(map(type, keys))
        are_tuples = kinds == {tuple}
        if are_tuples:
            kinds = set(map(type, chain.from_iterable(keys)))
        if kinds <= PLAIN:
            if float not in kinds:
                return keys
            parts = list(chain.from_iterable(keys)) if are_tuples else keys
            return [seen(key) for key in keys] if any(map(ne, parts, parts)) else keys
        try:
            if self._known.issuperset(keys):
                return keys
        except TypeError:
            pass
        return [self._hashed(key) for key in keys]

    def _seen(self, key: Key) -> Key:
        if self._check is not None:
            self._check([key])
        return self._hashed(key)

    def _hashed(self, key: Key) -> Key:
        known = self._known
        try:
            if key in known:
                return key
        except TypeError:  # it is not hashable
            pass
        found = seen(key)
        if found is key:
            if len(known) >= KNOWN_KEYS:
                known.clear()
            known.add(key)
        return found


def key_check(key_type: object) -> Callable[[list[Key]], None] | None:
    """Raises TypeError for keys that do not fit what the program has declared; None fits all.

    They stay as they are: an equal key that was coerced would be no other key. Without a result
    nothing is declared.
    """
    make: Callable[[], Callable[[list[Key]], list[Key]]] | None
    make = getattr(key_type, "coercer", None)
    if make is None or getattr(key_type, "takes_anything", False):
        return None
    coerce = make()

    def check(keys: list[Key]) -> None:
        try:
            try:
                coerce(keys)
            except TypeError:
                coerce([key for key in keys if key is not None])
        except TypeError as error:
            raise TypeError(f"the key {error}") from None

    return check
