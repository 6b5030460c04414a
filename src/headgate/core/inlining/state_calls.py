"""Calls of value states in a body, as reads and writes of the dictionaries that hold them.

``self.count.value()`` is two look-ups and a call; in the loop it is one look-up. Law: it is done
only if nothing in the body can put another state in the place of one: it calls no other method of
its object, hands the object to nobody, and assigns none of these attributes.
"""

import ast
from collections.abc import Sequence
from types import MethodType
from typing import Final

from headgate.core.inlining.bodies import InlineBody
from headgate.core.inlining.emissions import statements_of

_VALUE: Final = ("value", 0)
_UPDATE: Final = ("update", 1)


class StateCalls:
    """Of the value states that a body uses by attributes of its object."""

    def __init__(self, owner: str, names: Sequence[str]) -> None:
        self.names = names
        """The attributes."""
        self._owner = owner

    @property
    def arguments(self) -> list[str]:
        """What a loop takes for the states: their entries."""
        return [f"entries_{name}" for name in self.names]

    @property
    def begin(self) -> list[str]:
        """What stands before the loop."""
        return [f"_hg_get_{name} = _hg_entries_{name}.get" for name in self.names]

    def replaced(self, statement: ast.stmt) -> list[ast.stmt]:
        """What a statement becomes; statements within it are not looked at."""
        match statement:
            case ast.Expr(value=ast.Call(args=[value]) as call) if self.state_of(call) is not None:
                name = self.state_of(call)
                made = statements_of(
                    f"_hg_new = _hg_VALUE\n"
                    f"if _hg_new is None:\n"
                    f"    _hg_entries_{name}.pop(_hg_key, None)\n"
                    f"else:\n"
                    f"    _hg_entries_{name}[_hg_key] = _hg_new",
                    VALUE=_Reads(self).visit(value),
                )
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

    def state_of(self, call: ast.Call) -> str | None:
        """The attribute whose state is called; None: something else is."""
        return _state_of(call, self._owner)


def state_calls(call: object, body: InlineBody) -> StateCalls | None:
    """The states that may be inlined in the body of a method; None: there are none."""
    if not isinstance(call, MethodType):
        return None
    owner = body.parameters[0]
    parts = [part for statement in body.statements for part in ast.walk(statement)]
    alone = {part.value for part in parts if isinstance(part, ast.Expr)}
    names: set[str] = set()
    for part in parts:
        if not isinstance(part, ast.Call):
            continue
        name = _state_of(part, owner)
        if name is not None:
            if part.args and part not in alone:
                return None  # somebody asks what an update answers
            names.add(name)
        elif _is_of(part.func, owner):
            return None  # another method of the object
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    reached = [part for part in attributes if _is_of(part, owner)]
    seen = [part for part in parts if isinstance(part, ast.Name) and part.id == owner]
    if len(seen) != len(reached):
        return None  # the object is handed to somebody
    if any(part.attr.startswith("__") for part in reached):
        return None  # ``self.__dict__["count"] = …``
    if any(part.attr in names and not isinstance(part.ctx, ast.Load) for part in reached):
        return None
    return StateCalls(owner, sorted(names)) if names else None


class _Reads(ast.NodeTransformer):
    def __init__(self, states: StateCalls) -> None:
        self._states = states

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = self._states.state_of(node)
        if name is None:
            return node
        get = ast.Name(f"_hg_get_{name}", ast.Load())
        key: list[ast.expr] = [ast.Name("_hg_key", ast.Load())]
        return ast.copy_location(ast.Call(func=get, args=key, keywords=[]), node)


def _state_of(call: ast.Call, owner: str) -> str | None:
    """The attribute whose ``value()`` or ``update(new)`` is called."""
    function = call.func
    if not isinstance(function, ast.Attribute) or call.keywords:
        return None
    if (function.attr, len(call.args)) not in (_VALUE, _UPDATE):
        return None
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    state = function.value
    return state.attr if isinstance(state, ast.Attribute) and _is_of(state, owner) else None


def _is_of(part: ast.AST, owner: str) -> bool:
    return (
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == owner
    )
