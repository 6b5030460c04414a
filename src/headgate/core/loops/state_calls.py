"""Calls of states in a body, as reads and writes of the dictionaries that hold them.

``self.count.value()`` is two look-ups and a call; in the loop it is one look-up. Law: it is done
only if nothing in the body can put another state in the place of one: it hands its object to
nobody, assigns none of these attributes, and calls only methods of the object that do the same.
Methods that are not written out here are called; both work on the same entries, at the same key.

A value with a time to live is judged at the time of the access. A body that calls nothing cannot
tell a bundle that takes a while from one that takes no time: its loop reads the clock once.
"""

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MethodType
from typing import Final, Literal, TypeAlias

from headgate.base.elements import Record
from headgate.base.values import own
from headgate.core.loops.bodies import InlineBody
from headgate.core.loops.emissions import statements_of
from headgate.core.loops.own_methods import found_by_code, leaves_alone
from headgate.core.loops.state_uses import LIVING, READERS, StateUses, is_of, state_call
from headgate.core.state.memory import PlainList, PlainMap, PlainValue
from headgate.core.state.opening import (
    Check,
    FoldedByAggregate,
    FoldedByReduce,
    TypedList,
    TypedMap,
    TypedValue,
    all_checked,
    as_it_is,
    exact_of,
)
from headgate.core.state.snapshot import NONE
from headgate.core.state.ttl import TtlList, TtlMap, TtlValue

StateKind = Literal["value", "list", "map", "reducing", "aggregating"]
PlainState: TypeAlias = PlainValue | PlainList | PlainMap


@dataclass(frozen=True, slots=True)
class InlineState:
    """What a loop has to know of a state in memory."""

    kind: StateKind
    check: Check | None = None
    """Checks values and elements against their type; None: any will do."""
    check_key: Check | None = None
    """Checks the keys of a map."""
    fold: object = None
    """What a reducing or aggregating state folds by."""
    living: TtlValue | TtlList | TtlMap | None = None
    """What knows how long values live; they are pairs with the times they were touched at then."""
    is_typed: bool = False
    """A map looks twice for what it does not find."""


def inline_state(state: object) -> tuple[InlineState, PlainState] | None:
    """How a state is inlined, and what has its entries; None: it has to be called."""
    made = InlineState("value")
    if type(state) is TypedMap:
        check, check_key = (
            None if call is as_it_is else call for call in (state.check, state.check_key)
        )
        made, state = InlineState("map", check, check_key, is_typed=True), state.held
    elif type(state) is FoldedByReduce:
        made = InlineState("reducing", state.check, fold=state.reduce)
        state = state.held
    elif type(state) is FoldedByAggregate:
        made = InlineState("aggregating", state.check, fold=state.function)
        state = state.held
    elif type(state) is TypedValue or type(state) is TypedList:
        made, state = replace(made, check=state.check), state.held
    if type(state) is TtlValue or type(state) is TtlList or type(state) is TtlMap:
        made, state = replace(made, living=state), state.held
    if type(state) is PlainValue:
        return made, state
    if type(state) is PlainList or type(state) is PlainMap:
        kind: StateKind = "list" if type(state) is PlainList else "map"
        return replace(made, kind=kind), state
    return None


_READS: Final = {
    ("value", "value", 0),
    *(("map", "get", 1), ("map", "contains", 1), ("map", "is_empty", 0)),
    *(("map", "items", 0), ("map", "keys", 0), ("map", "values", 0)),
    ("list", "get", 0),
    *(("reducing", "get", 0), ("aggregating", "get", 0)),
}
_WRITES: Final = {
    *(("value", "update", 1), ("map", "put", 2), ("map", "remove", 1)),
    *(("list", "add", 1), ("list", "update", 1), ("list", "add_all", 1)),
    *(("reducing", "add", 1), ("aggregating", "add", 1)),
    *((kind, "clear", 0) for kind in ("value", "list", "map", "reducing", "aggregating")),
}
_METHODS: Final = {(method, count) for _, method, count in _READS | _WRITES}

_CALLED_IF_LIVING: Final = {
    "list": {"get", "update", "add_all"},
    "map": {"is_empty", "items", "keys", "values", "remove"},
}
"""They look at all entries, or do not ask for the time."""


class StateCalls:
    """The states that a body uses by attributes of its object, as they are at the moment."""

    def __init__(
        self,
        body: InlineBody,
        states: Mapping[str, InlineState],
        context: str | None = None,
        harmless: Collection[str] = (),
        given_by_code: Collection[str] = (),
    ) -> None:
        """``context``: the parameter for it. ``harmless``: names that mean builtins.

        ``given_by_code``: attributes of the object that are properties.
        """
        self._owner = body.parameters[0]
        self._states = states
        kinds = {
            name: f"{LIVING if state.living else ''}{state.kind}" for name, state in states.items()
        }
        self.uses = StateUses(body, kinds, context, harmless, given_by_code)

    @property
    def arguments(self) -> list[str]:
        """What a loop takes for the states: their entries."""
        return [f"entries_{name}" for name in self._states]

    @property
    def begin(self) -> list[str]:
        """What stands before the loop."""
        lines = [f"_hg_get_{name} = _hg_entries_{name}.get" for name in self._states]
        for name, state in self._states.items():
            if state.living is not None and self.uses.is_short:
                lines += [
                    f"_hg_now_{name} = _hg_clock_{name}()",
                    f"_hg_rests_{name} = _hg_now_{name} < _hg_lifetime_{name}.rests_until_ms",
                    f"_hg_horizon_{name} = _hg_now_{name} - {state.living.lifetime.ttl_ms}",
                    f"_hg_pair_{name} = (_hg_nothing, 0)",
                ]
        return lines

    @property
    def given(self) -> dict[str, object]:
        """What the statements use."""
        found: dict[str, object] = {
            "all_checked": all_checked,
            "held_none": NONE,
            "list": list,
            "no_items": [],
            "nothing": {},
            "own": own,
        }
        for name, state in self._states.items():
            for use, check in (("value", state.check), ("key", state.check_key)):
                exact = exact_of(check)
                found[f"{use}_check_{name}"] = check
                found[f"{use}_kind_{name}"] = None if exact is None else exact[0]
            found[f"fold_{name}"] = state.fold
            if state.living is not None:
                lifetime = state.living.lifetime
                found[f"lifetime_{name}"] = lifetime
                found[f"clock_{name}"] = lifetime.now_ms
                found[f"sweep_{name}"] = lifetime.sweep
                found[f"read_{name}"] = _reader(state)
                found[f"contains_{name}"] = _finder(state)
        return found

    def replaced(self, statement: ast.stmt) -> list[ast.stmt]:
        """What a statement becomes; statements within it are not looked at."""
        reads = _Reads(self)
        match statement:
            case ast.Expr(value=ast.Call() as call) if called := self._call_of(call, _WRITES):
                name, method = called
                if method == "update" and self._keeps(name, call.args[0]):
                    made = self._kept_whole(name, reads.viewed(call.args[0]))
                else:
                    made = self._written(name, method, [*map(reads.visit, call.args)])
                for new in made:
                    ast.copy_location(new, statement)
                return made
            case ast.Assign(targets=[ast.Name(id=variable)]) if variable in self.uses.views:
                view = self.view(statement.value, reads)
                assert view is not None, "a view is assigned views"
                statement.value = view
            case ast.If() | ast.While():
                statement.test = reads.visit(statement.test)
            case ast.For():
                statement.iter = reads.viewed(statement.iter)
            case _:
                statement = reads.visit(statement)
        return [statement]

    def view(self, value: ast.expr, reads: "_Reads") -> ast.expr | None:
        """An expression for a list that is read and nothing else; None: it is no view.

        The list of the state itself, a variable that holds it, or a slice.
        """
        if self.uses.view_of(value, self.uses.views) is None:
            return None
        match value:
            case ast.Subscript(value=inner):
                found = self.view(inner, reads)
                assert found is not None, "a slice of a view"
                made = ast.Subscript(found, reads.visit(value.slice), ast.Load())
                return ast.copy_location(made, value)
            case ast.Call(func=ast.Name(), args=[inner]):  # list(): a copy that nobody needs
                return self.view(inner, reads)
            case ast.Call():
                called = state_call(value, self._owner)
                assert called is not None, "the call of a state"
                return _placed(
                    _expression(f"_hg_get_{called.attribute}(_hg_key) or _hg_no_items"), value
                )
            case _:
                return value

    def is_reader(self, call: ast.Call) -> bool:
        """Whether a builtin is called that reads lists and keeps none."""
        return (
            isinstance(call.func, ast.Name)
            and call.func.id in READERS
            and call.func.id in self.uses.harmless
        )

    def read(self, call: ast.Call) -> ast.expr:
        """What stands for a call, whose arguments were looked at."""
        called = self._call_of(call, _READS)
        if called is None:
            return call
        name, method = called
        state = self._states[name]
        held = f"_hg_get_{name}(_hg_key, _hg_nothing)"
        match state.kind, method:
            case "value", _:
                return _expression(self._held(name))
            case "reducing", _:
                held = f"(_hg_found := {self._held(name)})"
                return _expression(f"None if {held} is _hg_held_none else _hg_found")
            case "aggregating", _:
                found = "None if _hg_found is _hg_held_none else _hg_found"
                return _expression(
                    f"None if (_hg_found := {self._held(name)}) is None "
                    f"else _hg_fold_{name}.get_result({found})"
                )
            case "list", _:
                return _expression(f"_hg_list(_hg_get_{name}(_hg_key) or ())")
            case _, "is_empty":
                return _expression(f"not _hg_get_{name}(_hg_key)")
            case _, "keys":
                return _expression(f"_hg_list({held})")
            case _, "items" | "values":
                return _expression(f"_hg_list({held}.{method}())")
            case _:
                return self._read_of_map(name, method, held, call.args[0])

    def _read_of_map(self, name: str, method: str, held: str, key: ast.expr) -> ast.expr:
        check_key, living = self._states[name].check_key, self._states[name].living
        if living is not None:
            pair = f"(_hg_pair := {held}.get(_hg_map_key)) is not None"
            return _expression(
                f"{'True' if method == 'contains' else '_hg_pair[0]'} "
                f"if (_hg_map_key := _hg_VALUE) is not _hg_nothing and {self._swept(name)}{pair} "
                f"and {self._is_shown(name)} "
                f"else _hg_{'contains' if method == 'contains' else 'read'}_{name}"
                f"(_hg_map_key, _hg_pair, _hg_now_{name})",
                VALUE=key,
            )
        if check_key is None:
            found = f"{held}.get(_hg_VALUE)" if method == "get" else f"_hg_VALUE in {held}"
            return _expression(found, VALUE=key)
        # A key that is not found, and has another class, may have been put in the type's own form.
        again = f"{held}.get(_hg_key_check_{name}(_hg_map_key))"
        unlike = self._unlike("key", name, "_hg_map_key", check_key)
        if method == "contains":
            again = again.replace(".get(", ".__contains__(")
            found = f"(_hg_map_key := _hg_VALUE) in {held} or ({unlike} and {again})"
            return _expression(found, VALUE=key)
        return _expression(
            f"{again} if (_hg_found := {held}.get(_hg_map_key := _hg_VALUE)) is None "
            f"and {unlike} else _hg_found",
            VALUE=key,
        )

    def _held(self, name: str) -> str:
        """The expression that reads a single value."""
        if self._states[name].living is None:
            return f"_hg_get_{name}(_hg_key)"
        found = f"{self._swept(name)}(_hg_pair := _hg_get_{name}(_hg_key)) is not None"
        shown = f"_hg_pair[0] if {self._is_shown(name)} else _hg_read_{name}"
        return f"(({shown}(_hg_pair, _hg_now_{name})) if {found} else None)"

    def _swept(self, name: str) -> str:
        """What stands before a reading of living values: it cleans up, and sets the time."""
        living = self._states[name].living
        assert living is not None, "others are not cleaned up"
        if living.lifetime.cleans:
            return f"({self._rests(name)} or not _hg_sweep_{name}()) and "
        return "" if self.uses.is_short else f"{self._timed(name)} is not None and "

    def _is_shown(self, name: str) -> str:
        """Whether a pair is shown as it is, with nothing else to be done."""
        living = self._states[name].living
        assert living is not None, "others are always shown"
        if living.lifetime.counts_reading:  # at this very time reading changes nothing
            return f"_hg_pair[1] == _hg_now_{name}"
        now = f"_hg_now_{name} - {living.lifetime.ttl_ms}"
        horizon = f"_hg_horizon_{name}" if self.uses.is_short else now
        return f"_hg_pair[1] > {horizon}"

    def _rests(self, name: str) -> str:
        """Whether there is nothing to clean up. It sets the time of an access if need be."""
        if self.uses.is_short:
            return f"_hg_rests_{name}"
        return f"{self._timed(name)} < _hg_lifetime_{name}.rests_until_ms"

    def _timed(self, name: str) -> str:
        return f"(_hg_now_{name} := _hg_clock_{name}())"

    def _kept(self, name: str, value: str) -> tuple[str, str, str]:
        """How a variable is kept: lines that clean up, lines that make a pair of it, expression."""
        living = self._states[name].living
        if living is None:
            return "", "", value
        before = ""
        if living.lifetime.cleans:
            before = f"if not ({self._rests(name)}):\n    _hg_sweep_{name}()\n"
        elif not self.uses.is_short:
            before = f"{self._timed(name)}\n"
        pair = f"({value}, _hg_now_{name})"
        if not self.uses.is_short:
            return before, "", pair
        # Equal pairs of a bundle are one.
        made = f"if _hg_pair_{name}[0] is not {value}:\n    _hg_pair_{name} = {pair}\n"
        return before, made, f"_hg_pair_{name}"

    def _set(self, name: str, value: str, *, may_be_none: bool) -> str:
        """The lines that write a single value, which is a variable."""
        before, made, kept = self._kept(name, value)
        lines = f"{made}_hg_entries_{name}[_hg_key] = {kept}"
        if may_be_none:
            indented = lines.replace("\n", "\n    ")
            lines = (
                f"if {value} is None:\n    _hg_entries_{name}.pop(_hg_key, None)\n"
                f"else:\n    {indented}"
            )
        return before + lines

    def _written(self, name: str, method: str, arguments: list[ast.expr]) -> list[ast.stmt]:
        state = self._states[name]
        if method == "clear":
            return statements_of(f"_hg_entries_{name}.pop(_hg_key, None)")
        checked = self._checked("value", name, "_hg_new", state.check)
        match state.kind, method:
            case "value", _:
                kept = self._set(name, "_hg_new", may_be_none=state.check is None)
                return statements_of(f"_hg_new = _hg_VALUE\n{checked}{kept}", VALUE=arguments[0])
            case "reducing" | "aggregating", _:
                return statements_of(self._folded(name, checked), VALUE=arguments[0])
            case "list", "add":
                before, made, kept = self._kept(name, "_hg_new")
                text = (
                    f"_hg_new = _hg_VALUE\n{checked}{before}{made}"
                    f"_hg_held = _hg_get_{name}(_hg_key)\n"
                    f"if _hg_held is None:\n    _hg_entries_{name}[_hg_key] = [{kept}]\n"
                    f"else:\n    _hg_held.append({kept})"
                )
                return statements_of(text, VALUE=arguments[0])
            case "list", _:
                return self._list_written(name, method, arguments[0])
            case _, "remove":
                text = (
                    f"_hg_put_key = _hg_KEY\n"
                    f"{self._checked('key', name, '_hg_put_key', state.check_key)}"
                    f"_hg_held = _hg_get_{name}(_hg_key)\n"
                    f"if _hg_held is not None:\n    _hg_held.pop(_hg_put_key, None)\n"
                    f"    if not _hg_held:\n        _hg_entries_{name}.pop(_hg_key, None)"
                )
                return statements_of(text, KEY=arguments[0])
            case _:
                return self._put(name, arguments)

    def _put(self, name: str, arguments: list[ast.expr]) -> list[ast.stmt]:
        state = self._states[name]
        checked = self._checked("value", name, "_hg_new", state.check, "_hg_new is not None and ")
        before, made, kept = self._kept(name, "_hg_new")
        # Reads in the value use the name _hg_map_key.
        text = (
            f"_hg_put_key = _hg_KEY\n_hg_new = _hg_VALUE\n"
            f"{self._checked('key', name, '_hg_put_key', state.check_key)}{checked}{before}{made}"
            f"_hg_held = _hg_get_{name}(_hg_key)\n"
            f"if _hg_held is None:\n"
            f"    _hg_entries_{name}[_hg_key] = {{_hg_put_key: {kept}}}\n"
            f"else:\n    _hg_held[_hg_put_key] = {kept}"
        )
        return statements_of(text, KEY=arguments[0], VALUE=arguments[1])

    def _list_written(self, name: str, method: str, values: ast.expr) -> list[ast.stmt]:
        is_any = self._states[name].check is None
        new = (
            "_hg_list(_hg_VALUE)"
            if is_any
            else f"_hg_all_checked(_hg_value_check_{name}, _hg_VALUE)"
        )
        kept = f"if _hg_new:\n    _hg_entries_{name}[_hg_key] = _hg_new\n"
        if method == "update":
            text = f"_hg_new = {new}\n{kept}else:\n    _hg_entries_{name}.pop(_hg_key, None)"
        else:
            text = (
                f"_hg_new = {new}\n_hg_held = _hg_get_{name}(_hg_key)\n"
                f"if _hg_held is not None:\n    _hg_held.extend(_hg_new)\nel{kept}"
            )
        return statements_of(text, VALUE=values)

    def _keeps(self, name: str, values: ast.expr) -> bool:
        """Whether a view may be kept as it is: a check would give the same elements."""
        check = self._states[name].check
        is_own = self.uses.view_of(values, self.uses.views) == name
        return is_own and (check is None or exact_of(check) is not None)

    def _kept_whole(self, name: str, view: ast.expr) -> list[ast.stmt]:
        """A list of elements of the same state takes the place of that list."""
        text = (
            f"_hg_new = _hg_VALUE\nif _hg_new:\n    _hg_entries_{name}[_hg_key] = _hg_new\n"
            f"else:\n    _hg_entries_{name}.pop(_hg_key, None)"
        )
        return statements_of(text, VALUE=view)

    def _folded(self, name: str, checked: str) -> str:
        """The lines that fold a value into a single one."""
        kept = (
            "if _hg_new is None:\n    _hg_new = _hg_held_none\n"
            f"{self._set(name, '_hg_new', may_be_none=False)}"
        )
        old = f"_hg_old = {self._held(name)}\n"
        if self._states[name].kind == "aggregating":
            return (
                f"_hg_new = _hg_VALUE\n{old}"
                f"if _hg_old is None:\n"
                f"    _hg_old = _hg_own(_hg_fold_{name}.create_accumulator())\n"
                f"elif _hg_old is _hg_held_none:\n    _hg_old = None\n"
                f"_hg_new = _hg_fold_{name}.add(_hg_new, _hg_old)\n{checked}{kept}"
            )
        again = f"    {checked.strip()}\n".replace("\n    ", "\n        ") if checked else ""
        return (
            f"_hg_new = _hg_VALUE\n{checked}{old}"
            f"if _hg_old is not None:\n"
            f"    if _hg_old is _hg_held_none:\n        _hg_old = None\n"
            f"    _hg_new = _hg_fold_{name}(_hg_old, _hg_new)\n{again}{kept}"
        )

    def _checked(
        self, use: str, name: str, variable: str, check: Check | None, condition: str = ""
    ) -> str:
        """The lines that give a variable the form of its type; most values have it."""
        if check is None:
            return ""
        unlike = self._unlike(use, name, variable, check)
        return f"if {condition}{unlike}:\n    {variable} = _hg_{use}_check_{name}({variable})\n"

    def _unlike(self, use: str, name: str, variable: str, check: Check) -> str:
        """Whether a variable may have another form than its type."""
        exact = exact_of(check)
        if exact is None:
            return "True"
        other = f"_hg_type({variable}) is not _hg_{use}_kind_{name}"
        if exact[1] is None:
            return other
        low, high = exact[1]
        return f"({other} or not {low} <= {variable} <= {high})"

    def _call_of(self, call: ast.Call, known: set[tuple[str, str, int]]) -> tuple[str, str] | None:
        """The attribute whose state is called, and the method; None: something else is."""
        found = state_call(call, self._owner)
        if found is None:
            return None
        name, method, arguments = found
        state = self._states.get(name)
        if state is None or (state.kind, method, len(arguments)) not in known:
            return None
        is_called = state.living is not None and method in _CALLED_IF_LIVING.get(state.kind, ())
        return None if is_called else (name, method)


def _reader(state: InlineState) -> Callable[..., Record]:
    """What a loop asks for a value that it cannot show as it is."""
    living = state.living
    if not isinstance(living, TtlMap):
        return getattr(living, "read", as_it_is)

    def read(key: Record, pair: tuple[Record, int] | None, now_ms: int) -> Record:
        found = None if pair is None else living.read(key, pair, now_ms)
        if found is None and state.is_typed:
            return living.get(state.check_key(key) if state.check_key else key)
        return None if found is None else found[0]

    return read


def _finder(state: InlineState) -> Callable[..., bool] | None:
    """What a loop calls to ask whether a map has a key that is still alive."""
    living = state.living
    if not isinstance(living, TtlMap):
        return None

    def contains(key: Record, pair: tuple[Record, int] | None, now_ms: int) -> bool:
        if pair is not None and living.read(key, pair, now_ms) is not None:
            return True
        return state.is_typed and living.contains(state.check_key(key) if state.check_key else key)

    return contains


def state_attributes(call: object, body: InlineBody) -> list[str]:
    """The attributes whose states may be inlined in the body of a method."""
    if not isinstance(call, MethodType):
        return []
    owner = body.parameters[0]
    parts = [part for statement in body.statements for part in ast.walk(statement)]
    found = [state_call(part, owner) for part in parts]
    names = {
        call.attribute for call in found if call and (call.method, len(call.arguments)) in _METHODS
    }
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    reached = [part for part in attributes if is_of(part, owner)]
    seen = [part for part in parts if isinstance(part, ast.Name) and part.id == owner]
    if len(seen) != len(reached):
        return []  # the object is handed to somebody
    if any(part.attr.startswith("__") for part in reached):
        return []  # ``self.__dict__["count"] = …``
    if any(part.attr in names and not isinstance(part.ctx, ast.Load) for part in reached):
        return []
    methods = found_by_code(call.__self__, {part.attr for part in reached})
    functions = [part.func for part in parts if isinstance(part, ast.Call)]
    called = {part.attr for part in reached if part in functions}
    if not all(leaves_alone(call.__self__, method, names) for method in methods | called):
        return []  # they may assign one of them
    return sorted(names)


class _Reads(ast.NodeTransformer):
    """Puts reads of dictionaries, or the lists in them, in the place of calls."""

    def __init__(self, states: StateCalls) -> None:
        self._states = states

    def viewed(self, node: ast.expr) -> ast.expr:
        """What stands for a list that is read and nothing else."""
        found = self._states.view(node, self)
        return self.visit(node) if found is None else found

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._states.is_reader(node):
            node.args = [self.viewed(argument) for argument in node.args]
            return node
        self.generic_visit(node)
        found = self._states.read(node)
        return node if found is node else _placed(found, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.ctx, ast.Load):
            node.value, node.slice = self.viewed(node.value), self.visit(node.slice)
            return node
        return self.generic_visit(node)


def _placed(made: ast.expr, node: ast.expr) -> ast.expr:
    """An expression of the loop's own, in the user's line."""
    for part in ast.walk(made):
        if "lineno" in part._attributes and not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return made


def _expression(text: str, **parts: ast.expr) -> ast.expr:
    (statement,) = statements_of(text, **parts)
    assert isinstance(statement, ast.Expr)
    return statement.value
