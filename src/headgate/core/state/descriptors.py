"""State descriptors: name, kind and type of a state, as a function asks for it in ``open``.

Two descriptors with the same name are the same state of an operator, wherever they were made.
"""

from headgate.core.state.folding import Aggregate
from headgate.core.state.ttl_config import StateTtlConfig


class StateDescriptor:
    """Base of all descriptors. ``type_info`` is a type such as ``Types.LONG()``, or None."""

    kind = ""

    def __init__(self, name: str, type_info: object = None) -> None:
        if not name or type(name) is not str:
            raise ValueError(f"a state needs a text that is not empty as its name, not {name!r}")
        self.name = name
        self.type_info = self._checked(type_info)
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Forget entries that were not written (or read) for a while."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(
                f"{ttl_config!r} is no StateTtlConfig; make one with "
                f"StateTtlConfig.new_builder(Time.hours(1)).build()"
            )
        self._ttl_config = ttl_config

    def _checked(self, type_info: object) -> object:
        """A type or None, and not what is easily taken for one: ``int``, ``Types.INT``."""
        if callable(type_info) or isinstance(type_info, str):
            raise TypeError(
                f"the state {self.name!r} was given the type {type_info!r}; give one such as "
                f"Types.INT(), or none"
            )
        return type_info

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """None: entries stay."""
        return self._ttl_config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ValueStateDescriptor(StateDescriptor):
    """``ValueStateDescriptor("count", Types.LONG())``"""

    kind = "value"

    def __init__(self, name: str, value_type_info: object = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """The type is that of an element."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: object = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """``MapStateDescriptor("visits", Types.STRING(), Types.LONG())``"""

    kind = "map"

    def __init__(
        self, name: str, key_type_info: object = None, value_type_info: object = None
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = self._checked(key_type_info)


class ReducingStateDescriptor(StateDescriptor):
    """With a callable of two values, or a ReduceFunction."""

    kind = "reducing"

    def __init__(self, name: str, reduce_function: object, type_info: object = None) -> None:
        super().__init__(name, type_info)
        if isinstance(reduce_function, type) or not (
            callable(reduce_function) or hasattr(reduce_function, "reduce")
        ):
            raise TypeError(
                f"the reducing state {name!r} was given {reduce_function!r}; give a ReduceFunction "
                f"or a callable of two values"
            )
        self.reduce_function = reduce_function

    def get_reduce_function(self) -> object:
        return self.reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """With an AggregateFunction; the type is that of the accumulator."""

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Aggregate, state_type_info: object = None) -> None:
        super().__init__(name, state_type_info)
        methods = ("create_accumulator", "add", "get_result")
        if isinstance(agg_function, type) or not all(hasattr(agg_function, m) for m in methods):
            raise TypeError(
                f"the aggregating state {name!r} was given {agg_function!r}; give an object of an "
                f"AggregateFunction"
            )
        self.agg_function = agg_function

    def get_agg_function(self) -> Aggregate:
        return self.agg_function
