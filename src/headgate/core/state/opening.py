"""From a descriptor to a state: the backend's part, and around it time to live, types and folding.

Law: the same name gives the same state object again; a name that was opened as another kind, or
with another type, is refused, and so is one that was restored as such. What a descriptor does not
ask for is not put around the state, and costs nothing.
"""

from collections.abc import Callable

from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.folding import FoldedByAggregate, FoldedByReduce
from headgate.core.state.migration import has_ttl, settle, types_of
from headgate.core.state.shapes import StateShapes
from headgate.core.state.ttl import with_ttl
from headgate.core.state.typed import Check, TypedList, TypedMap, TypedValue, check_for
from headgate.functions.state import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
)


class StateOpener:
    """Opens the states of one operator. ``namespaced``: one for each window, too."""

    def __init__(
        self,
        backend: KeyedBackend,
        now_ms: Callable[[], int],
        namespaced: bool = False,
        shapes: StateShapes | None = None,
    ) -> None:
        """``shapes``: kinds and types of what was restored; None: nothing is known of them."""
        self._backend = backend
        self._shapes = StateShapes() if shapes is None else shapes
        self._now_ms = now_ms
        self._namespaced = namespaced
        self._opened: dict[str, tuple[StateDescriptor, State]] = {}

    def open(self, descriptor: StateDescriptor) -> State:
        """The state that a descriptor names."""
        found = self._opened.get(descriptor.name)
        if found is None:
            found = self._opened[descriptor.name] = descriptor, self._make(descriptor)
        elif found[0] is not descriptor:
            _refuse_other(descriptor, found[0])
        return found[1]

    def _make(self, descriptor: StateDescriptor) -> State:
        kind = descriptor.kind if descriptor.kind in ("list", "map") else "value"
        spec = StateSpec(descriptor.name, kind, self._namespaced)
        settle(self._backend, self._shapes, descriptor, spec, self._now_ms)
        held = self._held(spec, descriptor)
        check = _check(descriptor, descriptor.type_info)
        if isinstance(descriptor, ReducingStateDescriptor):
            return FoldedByReduce(held, descriptor.reduce_function, check)  # type: ignore[arg-type]
        if isinstance(descriptor, AggregatingStateDescriptor):
            return FoldedByAggregate(held, descriptor.agg_function, check)  # type: ignore[arg-type]
        if isinstance(descriptor, MapStateDescriptor):
            check_key = _check(descriptor, descriptor.key_type_info)
            typed = check is not None or check_key is not None
            return TypedMap(held, check_key, check) if typed else held  # type: ignore[arg-type]
        if check is None:
            return held
        return TypedList(held, check) if kind == "list" else TypedValue(held, check)  # type: ignore[arg-type]

    def _held(self, spec: StateSpec, descriptor: StateDescriptor) -> State:
        """The backend's state, with a time to live if the descriptor has one."""
        config, backend = descriptor.ttl_config, self._backend
        if config is not None and has_ttl(descriptor):
            return with_ttl(backend, spec, config, self._now_ms)
        match spec.kind:
            case "list":
                return backend.list_state(spec)
            case "map":
                return backend.map_state(spec)
            case _:
                return backend.value_state(spec)


def _refuse_other(descriptor: StateDescriptor, first: StateDescriptor) -> None:
    name, kind = descriptor.name, first.kind
    if kind != descriptor.kind:
        raise ValueError(
            f"the state {name!r} is a {kind} state already and cannot be a {descriptor.kind} state "
            f"too; give it another name"
        )
    if types_of(descriptor) != types_of(first):
        raise ValueError(
            f"the {kind} state {name!r} has the type {_told(first)} already and cannot have "
            f"{_told(descriptor)} too; give it another name, or both the same type"
        )


def _told(descriptor: StateDescriptor) -> str:
    return ", ".join("none" if one is None else repr(one) for one in types_of(descriptor))


def _check(descriptor: StateDescriptor, type_info: object) -> Check | None:
    hint = "call clear() to forget the value" if descriptor.kind == "value" else ""
    return check_for(descriptor.name, type_info, hint)
