"""Calls of states in a body, as reads and writes of the dictionaries that hold them.

``self.count.value()`` is two look-ups and a call; in the loop it is one look-up. Law: it is done
only if nothing in the body can put another state in the place of one: it calls no other method of
its object, hands the object to nobody, and assigns none of these attributes. Methods that are not
written out here are called; both work on the same entries, at the same key.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Final, Literal

from headgate.core.inlining.bodies import InlineBody
from headgate.core.inlining.emissions import statements_of
from headgate.core.state.memory_states import PlainList, PlainMap, PlainValue
from headgate.core.state.opening import (
    Check,
    TypedList,
    TypedMap,
    TypedValue,
    as_it_is,
    exact_of,
)
from headgate.core.state.tables import Entries

StateKind = Literal["value", "list", "map"]


@dataclass(frozen=True, slots=True)
class InlineState:
    """What a loop has to know of a state in memory."""

    kind: StateKind
    check: Check | None = None
    """Of values and elements; None: any will do."""
    check_key: Check | None = None
    """Of the keys of a map."""


def inline_state(state: object) -> tuple[InlineState, Entries] | None:
    """How a state is inlined, and what it holds; None: it has to be called."""
    check = check_key = None
    if type(state) is TypedMap:
        check, check_key = (
            None if call is as_it_is else call for call in (state.check, state.check_key)
        )
        state = state.held
    elif type(state) is TypedValue or type(state) is TypedList:
        check, state = state.check, state.held
    for plain, kind in _KINDS.items():
        if type(state) is plain:
            return InlineState(kind, check, check_key), state.entries  # type: ignore[attr-defined]
    return None


_KINDS: Final[Mapping[type, StateKind]] = {PlainValue: "value", PlainList: "list", PlainMap: "map"}

_READS: Final = {
    ("value", "value", 0),
    ("map", "get", 1),
    ("map", "contains", 1),
    ("list", "get", 0),
}
_WRITES: Final = {
    *(("value", "update", 1), ("map", "put", 2), ("list", "add", 1)),
    *((kind, "clear", 0) for kind in _KINDS.values()),
}
_METHODS: Final = {(method, count) for _, method, count in _READS | _WRITES}


class StateCalls:
    """The states that a body uses by attributes of its object, as they are at the moment."""

    def __init__(self, owner: str, states: Mapping[str, InlineState]) -> None:
        self._owner = owner
        self._states = states

    @property
    def arguments(self) -> list[str]:
        """What a loop takes for the states: their entries."""
        return [f"entries_{name}" for name in self._states]

    @property
    def begin(self) -> list[str]:
        """What stands before the loop."""
        return [f"_hg_get_{name} = _hg_entries_{name}.get" for name in self._states]

    @property
    def given(self) -> dict[str, object]:
        """What the statements use."""
        found: dict[str, object] = {"nothing": {}, "list": list}
        for name, state in self._states.items():
            for use, check in (("value", state.check), ("key", state.check_key)):
                exact = exact_of(check)
                found[f"{use}_check_{name}"] = check
                found[f"{use}_kind_{name}"] = None if exact is None else exact[0]
        return found

    def replaced(self, statement: ast.stmt) -> list[ast.stmt]:
        """What a statement becomes; statements within it are not looked at."""
        match statement:
            case ast.Expr(value=ast.Call() as call) if called := self._call_of(call, _WRITES):
                arguments = [_Reads(self).visit(argument) for argument in call.args]
                made = self._written(*called, arguments)
                for new in made:
                    ast.copy_location(new, statement)
                return made
            case ast.If() | ast.While():
                statement.test = _Reads(self).visit(statement.test)
            case ast.For():
                statement.iter = _Reads(self).visit(statement.iter)
            case _:
                statement = _Reads(self).visit(statement)
        return [statement]

    def read(self, call: ast.Call) -> ast.expr:
        """What stands for a call, whose arguments were looked at."""
        called = self._call_of(call, _READS)
        if called is None:
            return call
        name, method = called
        state = self._states[name]
        if state.kind == "value":
            return _expression(f"_hg_get_{name}(_hg_key)")
        if state.kind == "list":
            return _expression(f"_hg_list(_hg_get_{name}(_hg_key) or ())")
        held, key = f"_hg_get_{name}(_hg_key, _hg_nothing)", call.args[0]
        if state.check_key is None:
            found = f"{held}.get(_hg_VALUE)" if method == "get" else f"_hg_VALUE in {held}"
            return _expression(found, VALUE=key)
        # A key that is not found, and has another class, may have been put in the type's own form.
        again = f"{held}.get(_hg_key_check_{name}(_hg_map_key))"
        unlike = self._unlike("key", name, "_hg_map_key", state.check_key)
        if method == "contains":
            again = again.replace(".get(", ".__contains__(")
            found = f"(_hg_map_key := _hg_VALUE) in {held} or ({unlike} and {again})"
            return _expression(found, VALUE=key)
        return _expression(
            f"{again} if (_hg_found := {held}.get(_hg_map_key := _hg_VALUE)) is None "
            f"and {unlike} else _hg_found",
            VALUE=key,
        )

    def _written(self, name: str, method: str, arguments: list[ast.expr]) -> list[ast.stmt]:
        state = self._states[name]
        if method == "clear":
            return statements_of(f"_hg_entries_{name}.pop(_hg_key, None)")
        if method == "update":
            checked = self._checked("value", name, "_hg_new", state.check)
            kept = f"_hg_entries_{name}[_hg_key] = _hg_new"
            if state.check is None:
                kept = (
                    f"if _hg_new is None:\n    _hg_entries_{name}.pop(_hg_key, None)\n"
                    f"else:\n    {kept}"
                )
            return statements_of(f"_hg_new = _hg_VALUE\n{checked}{kept}", VALUE=arguments[0])
        if method == "add":
            text = (
                f"_hg_new = _hg_VALUE\n"
                f"{self._checked('value', name, '_hg_new', state.check)}"
                f"_hg_held = _hg_get_{name}(_hg_key)\n"
                f"if _hg_held is None:\n    _hg_entries_{name}[_hg_key] = [_hg_new]\n"
                f"else:\n    _hg_held.append(_hg_new)"
            )
            return statements_of(text, VALUE=arguments[0])
        checked = self._checked("value", name, "_hg_new", state.check, "_hg_new is not None and ")
        # Reads in the value use the name _hg_map_key.
        text = (
            f"_hg_put_key = _hg_KEY\n_hg_new = _hg_VALUE\n"
            f"{self._checked('key', name, '_hg_put_key', state.check_key)}{checked}"
            f"_hg_held = _hg_get_{name}(_hg_key)\n"
            f"if _hg_held is None:\n"
            f"    _hg_entries_{name}[_hg_key] = {{_hg_put_key: _hg_new}}\n"
            f"else:\n    _hg_held[_hg_put_key] = _hg_new"
        )
        return statements_of(text, KEY=arguments[0], VALUE=arguments[1])

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
        found = _called_state(call, self._owner)
        if found is None:
            return None
        name, method, count = found
        state = self._states.get(name)
        return (name, method) if state and (state.kind, method, count) in known else None


def state_attributes(call: object, body: InlineBody) -> list[str]:
    """The attributes whose states may be inlined in the body of a method."""
    if not isinstance(call, MethodType):
        return []
    owner = body.parameters[0]
    parts = [part for statement in body.statements for part in ast.walk(statement)]
    names: set[str] = set()
    for part in parts:
        if not isinstance(part, ast.Call):
            continue
        found = _called_state(part, owner)
        if found is not None:
            names.add(found[0])
        elif _is_of(part.func, owner):
            return []  # another method of the object
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    reached = [part for part in attributes if _is_of(part, owner)]
    seen = [part for part in parts if isinstance(part, ast.Name) and part.id == owner]
    if len(seen) != len(reached):
        return []  # the object is handed to somebody
    if any(part.attr.startswith("__") for part in reached):
        return []  # ``self.__dict__["count"] = …``
    if any(part.attr in names and not isinstance(part.ctx, ast.Load) for part in reached):
        return []
    return sorted(names)


class _Reads(ast.NodeTransformer):
    def __init__(self, states: StateCalls) -> None:
        self._states = states

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        found = self._states.read(node)
        if found is not node:
            for part in ast.walk(found):
                if "lineno" in part._attributes and not hasattr(part, "lineno"):
                    ast.copy_location(part, node)
        return found


def _expression(text: str, **parts: ast.expr) -> ast.expr:
    (statement,) = statements_of(text, **parts)
    assert isinstance(statement, ast.Expr)
    return statement.value


def _called_state(call: ast.Call, owner: str) -> tuple[str, str, int] | None:
    """Attribute, method and number of arguments of a call such as ``self.count.value()``."""
    function = call.func
    if not isinstance(function, ast.Attribute) or call.keywords:
        return None
    if (function.attr, len(call.args)) not in _METHODS:
        return None
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    state = function.value
    if not isinstance(state, ast.Attribute) or not _is_of(state, owner):
        return None
    return state.attr, function.attr, len(call.args)


def _is_of(part: ast.AST, owner: str) -> bool:
    return (
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == owner
    )
