"""What a restored keyed state goes through when it is opened: refused, rewritten or left alone.

A state of the same shape is not touched, so that an ordinary restart costs nothing. One whose type
has become wider, or that has got or lost its time to live, is rewritten entry by entry. Law: what
is not known, because an older version has written the checkpoint, is judged by its first values.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

from headgate.base.elements import Record
from headgate.base.state_shapes import KEYED, WINDOWED, StateShape
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.folding import NONE
from headgate.core.state.shapes import StateShapes
from headgate.core.state.snapshot import TTL
from headgate.core.state.type_changes import Change, converter, shape_of
from headgate.functions.state import MapStateDescriptor, StateDescriptor

SAMPLED: Final = 1000
"""Places of a state of unknown type that are looked at; on disk each costs a read."""

Convert = Callable[[Record], Record]


def types_of(descriptor: StateDescriptor) -> tuple[object, ...]:
    """Declared types: of a map of its keys and its values."""
    if isinstance(descriptor, MapStateDescriptor):
        return descriptor.key_type_info, descriptor.type_info
    return (descriptor.type_info,)


def has_ttl(descriptor: StateDescriptor) -> bool:
    """Whether its entries are forgotten after a while."""
    config = descriptor.ttl_config
    return config is not None and config.is_enabled()


def settle(
    backend: KeyedBackend,
    shapes: StateShapes,
    descriptor: StateDescriptor,
    spec: StateSpec,
    now_ms: Callable[[], int],
) -> None:
    """Before a state is opened: make of what was restored what the descriptor says.

    Raises StateChanged, and nothing is opened then.
    """
    scope = WINDOWED if spec.namespaced else KEYED
    types = types_of(descriptor)
    shape = StateShape(descriptor.name, descriptor.kind, tuple(map(shape_of, types)), scope)
    stored_as = backend.catalog.restored_as(spec.name)
    before = shapes.before(shape.name, scope)
    if stored_as is not None and stored_as.removesuffix(TTL) != spec.kind:
        shapes.refuse(shape, str(before[0]) if before else stored_as)
    change = shapes.compare(shape)
    if stored_as is not None:  # else there is nothing to look at
        _adapt(backend, shapes, descriptor, spec, shape, change, now_ms)
    shapes.enter(shape)


def _adapt(
    backend: KeyedBackend,
    shapes: StateShapes,
    descriptor: StateDescriptor,
    spec: StateSpec,
    shape: StateShape,
    change: Change,
    now_ms: Callable[[], int],
) -> None:
    types, before = types_of(descriptor), shapes.before(shape.name, shape.scope)
    stored_as = backend.catalog.stored_as[spec.name]
    entries = _Entries(backend, spec, stored_as.endswith(TTL), has_ttl(descriptor), now_ms)
    known = before[0].types if before else (None,) * len(types)
    converts = tuple(map(converter, known, types))
    try:
        if entries.changes_ttl or change is Change.REWRITTEN:
            entries.rewrite(converts)
        elif not before and any(one is not None for one in types):
            entries.look_at(converts)
    except TypeError as error:
        shapes.refuse(shape, str(before[0]) if before else stored_as, str(error))


class _Entries:
    """What a restored state holds, at every key and namespace."""

    def __init__(
        self,
        backend: KeyedBackend,
        spec: StateSpec,
        had_ttl: bool,
        has_ttl: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._backend = backend
        self._spec = spec
        self._before = replace(spec, has_ttl=had_ttl)
        self._had_ttl = had_ttl
        self._has_ttl = has_ttl
        self._now_ms = now_ms

    @property
    def changes_ttl(self) -> bool:
        return self._had_ttl != self._has_ttl

    def look_at(self, converts: tuple[Convert, ...]) -> None:
        """Let the new type judge the first ones; raises TypeError."""
        self._each(converts, writes=False, limit=SAMPLED)

    def rewrite(self, converts: tuple[Convert, ...]) -> None:
        """Put each in the new form; raises TypeError."""
        self._each(converts, writes=True, limit=None)
        after = replace(self._spec, has_ttl=self._has_ttl)
        self._backend.catalog.rewritten(after.name, after.stored_as)

    def _each(self, converts: tuple[Convert, ...], *, writes: bool, limit: int | None) -> None:
        backend = self._backend
        cursor = backend.cursor
        key, namespace = cursor.key, cursor.namespace
        visit = self._visitor(converts, writes)
        try:
            for cursor.namespace, cursor.key in islice(backend.places(self._spec), limit):
                visit()
        finally:
            cursor.key, cursor.namespace = key, namespace

    def _visitor(self, converts: tuple[Convert, ...], writes: bool) -> Callable[[], None]:
        """What brings the entry at the cursor into its new form."""
        backend, of_value = self._backend, self._of_value(converts[-1])
        match self._spec.kind:
            case "list":
                elements = backend.list_state(self._before)

                def visit_list() -> None:
                    made = [of_value(element) for element in elements.get()]
                    if writes:
                        elements.update(made)

                return visit_list
            case "map":
                items, of_key = backend.map_state(self._before), converts[0]

                def visit_map() -> None:
                    made = [(of_key(key), of_value(held)) for key, held in list(items.items())]
                    if writes:
                        items.clear()
                        for key, held in made:
                            items.put(key, held)

                return visit_map
            case _:
                value = backend.value_state(self._before)

                def visit_value() -> None:
                    made = of_value(value.value())
                    if writes:
                        value.update(made)

                return visit_value

    def _of_value(self, convert: Convert) -> Convert:
        """With the time of the last touch around it, before and afterwards, if there is one."""
        had_ttl, has_ttl, now_ms = self._had_ttl, self._has_ttl, self._now_ms()

        def converted(held: Record) -> Record:
            value, touched_ms = held if had_ttl else (held, now_ms)
            made = value if value is NONE else convert(value)
            return (made, touched_ms) if has_ttl else made

        return converted
