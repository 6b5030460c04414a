"""What a body does between two calls of its states, and with the lists that they give it.

A body that calls nothing but states and harmless builtins cannot tell the time, and nobody else
reaches its states while it runs. Law: a variable is a view of a list state only if the list that it
holds is read and nothing else, as long as the variable is there; so it may be the very list of the
state. All values of a view are elements of its state.
"""

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headgate.core.loops.bodies import InlineBody, names_in

READERS: Final = frozenset({"all", "any", "frozenset", "len", "list", "max", "min"}) | {
    *("set", "sorted", "sum", "tuple"),
}
"""Builtins that read a list, and keep it nowhere."""

_HARMLESS: Final = {
    name: getattr(builtins, name)
    for name in READERS | {"abs", "bool", "float", "int", "isinstance", "range", "round", "str"}
}

_HARMLESS_KEYWORDS: Final = frozenset({"default", "reverse", "start"})

_STATE_METHODS: Final = {
    "value": frozenset({"value", "update", "clear"}),
    "list": frozenset({"get", "add", "add_all", "update", "clear"}),
    "map": frozenset({"get", "put", "contains", "remove", "items", "keys", "values", "clear"})
    | {"is_empty"},
}
"""Methods that run no code of the user's, unlike those of states that fold."""

LIVING: Final = "living "
"""In front of the kind of a state with a time to live."""

_CONTEXT_METHODS: Final = frozenset({"timestamp", "get_current_key"})


class HarmlessNames:
    """The names in a body that mean builtins, which are harmless, for as long as they mean them."""

    def __init__(self, body: InlineBody) -> None:
        function = body.function
        code = function.__code__
        self._globals = function.__globals__
        found = self._globals.get("__builtins__", builtins)  # a module, or what it holds
        self._builtins: Mapping[str, object] = found if isinstance(found, dict) else vars(found)
        local = {*code.co_varnames, *code.co_freevars, *code.co_cellvars}
        used = (names_in(body.statements) & _HARMLESS.keys()) - local
        self.names = frozenset(filter(self._is_builtin, used))

    def hold(self) -> bool:
        """Whether they still mean these."""
        return all(map(self._is_builtin, self.names))

    def _is_builtin(self, name: str) -> bool:
        return name not in self._globals and self._builtins.get(name) is _HARMLESS[name]


class StateCall(NamedTuple):
    """A call such as ``self.count.update(3)``."""

    attribute: str
    method: str
    arguments: Sequence[ast.expr]


def state_call(part: ast.AST, owner: str) -> StateCall | None:
    """None: it is no such call, or one with arguments that are not plain."""
    match part:
        case ast.Call(func=ast.Attribute(value=ast.Attribute() as state) as method, args=args):
            plain = not part.keywords and not any(isinstance(item, ast.Starred) for item in args)
            if plain and is_of(state, owner):
                return StateCall(state.attr, method.attr, args)
        case _:
            pass
    return None


def is_of(part: ast.AST, owner: str) -> bool:
    """Whether it is an attribute of this variable."""
    return (
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == owner
    )


class StateUses:
    """How a body uses its states."""

    def __init__(
        self,
        body: InlineBody,
        kinds: Mapping[str, str],
        context: str | None,
        harmless: Collection[str],
        given_by_code: Collection[str] = (),
    ) -> None:
        """``kinds``: of the states, by attribute. ``context``: what is passed beside the record."""
        self._owner = body.parameters[0]
        self._kinds = kinds
        self._context = context
        self.harmless = harmless
        """Names that mean builtins."""
        self._parts = [part for statement in body.statements for part in ast.walk(statement)]
        self.calls_nothing = all(
            self._is_known(part) for part in self._parts if isinstance(part, ast.Call)
        ) and not any(
            isinstance(part, ast.Attribute) and part.attr in given_by_code
            for part in self._parts
            if is_of(part, self._owner)
        )
        """But states, harmless builtins and the context."""
        self.is_short = self.calls_nothing and not _yields_in_loops(self._parts)
        """It also hands nothing on before it ends: between two calls of it no time need pass."""
        self.viewable = frozenset(
            name
            for name, kind in kinds.items()
            if kind == "list" and self.calls_nothing and self._is_viewable(name, body.statements)
        )
        """List states that are only replaced while somebody may look at what they held."""
        self.views = self._found_views(set(body.parameters))
        """Variables that are views, with their states."""

    def view_of(self, value: ast.AST, views: Mapping[str, str]) -> str | None:
        """The state of whose elements a list consists, if it is one; ``views``: the variables."""
        match value:
            case ast.Name(id=name):
                return views.get(name)
            case ast.Subscript(value=inner, slice=ast.Slice()):
                return self.view_of(inner, views)
            case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
                return self.view_of(inner, views) if "list" in self.harmless else None
            case _:
                found = state_call(value, self._owner)
                is_got = found is not None and found.method == "get" and not found.arguments
                return found.attribute if found and is_got and self._is_shown(found) else None

    def _is_shown(self, found: StateCall) -> bool:
        return found.attribute in self.viewable

    def _is_known(self, call: ast.Call) -> bool:
        found = state_call(call, self._owner)
        if found is not None:
            kind = self._kinds.get(found.attribute, "").removeprefix(LIVING)
            return found.method in _STATE_METHODS.get(kind, ())
        match call.func:
            case ast.Name(id=name):
                keywords = {keyword.arg for keyword in call.keywords}
                return name in self.harmless and keywords <= _HARMLESS_KEYWORDS
            case ast.Attribute(value=ast.Name(id=name), attr=method):
                return name == self._context and method in _CONTEXT_METHODS
            case _:
                return False

    def _is_viewable(self, name: str, body: Sequence[ast.stmt]) -> bool:
        """Whether its list is changed in place only before it is read, and used by calls alone."""
        calls = [(part, state_call(part, self._owner)) for part in self._parts]
        found = {part: call for part, call in calls if call is not None and call.attribute == name}
        receivers = {part.func.value for part in found}  # type: ignore[attr-defined]
        if any(
            isinstance(part, ast.Attribute) and part.attr == name and part not in receivers
            for part in self._parts
            if is_of(part, self._owner)
        ):
            return False
        added, read = [], []
        for number, (statement, is_looped) in enumerate(_in_order(body, False)):
            for part in _own_parts(statement):
                if part not in found:
                    continue
                if found[part].method == "get":
                    read.append(number)
                elif found[part].method in ("add", "add_all"):
                    if is_looped or not isinstance(statement, ast.Expr):
                        return False
                    added.append(number)
        return not added or not read or max(added) < min(read)

    def _found_views(self, parameters: set[str]) -> dict[str, str]:
        stored: dict[str, list[ast.expr]] = {}
        for part in self._parts:
            match part:
                case ast.Assign(targets=[ast.Name(id=name)], value=found):
                    stored.setdefault(name, []).append(found)
                case _:
                    pass
        stores = [
            part.id
            for part in self._parts
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
        ]
        views: dict[str, str] = {}
        for _ in range(len(stored)):  # a variable may stand for one that is found later
            for name, values in stored.items():
                for value in values:
                    state = self.view_of(value, views)
                    if state is not None and name not in parameters:
                        views.setdefault(name, state)
        while True:
            allowed = self._places_to_read(views)
            wrong = {
                name
                for name, state in views.items()
                if stores.count(name) != len(stored[name])
                or any(self.view_of(value, views) != state for value in stored[name])
                or any(
                    isinstance(part, ast.Name)
                    and part.id == name
                    and isinstance(part.ctx, ast.Load)
                    and part not in allowed
                    for part in self._parts
                )
            }
            if not wrong:
                return views
            views = {name: state for name, state in views.items() if name not in wrong}

    def _places_to_read(self, views: Mapping[str, str]) -> set[ast.AST]:
        """Where a list stands that is read and nothing else."""
        found: set[ast.AST] = set()
        for part in self._parts:
            match part:
                case ast.Subscript(value=value, ctx=ast.Load()):
                    found.add(value)
                case ast.Call(func=ast.Name(id=name), args=args) if name in self.harmless:
                    found.update(args if name in READERS else ())
                case ast.Call():
                    called = state_call(part, self._owner)
                    if called is not None and self._kinds.get(called.attribute) == "list":
                        found.update(called.arguments if called.method != "add" else ())
                case ast.For(iter=value) | ast.Starred(value=value, ctx=ast.Load()):
                    found.add(value)
                case ast.Compare(ops=ops, comparators=others):
                    pairs = zip(ops, others, strict=True)
                    found.update(other for op, other in pairs if isinstance(op, ast.In | ast.NotIn))
                case ast.UnaryOp(op=ast.Not(), operand=value):
                    found.add(value)
                case ast.If(test=value) | ast.IfExp(test=value):
                    found.add(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in views:
                    found.add(value)
        return found


def _in_order(statements: Sequence[ast.stmt], is_looped: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement, and whether it stands in a loop, in the order of the text."""
    for statement in statements:
        yield statement, is_looped
        inner = is_looped or isinstance(statement, ast.For | ast.While)
        for block in ("body", "orelse"):
            yield from _in_order(getattr(statement, block, ()), inner)


def _own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement, without those of the statements in it."""
    left: list[ast.AST] = [statement]
    while left:
        part = left.pop()
        yield part
        left += [child for child in ast.iter_child_nodes(part) if not isinstance(child, ast.stmt)]


def _yields_in_loops(parts: Sequence[ast.AST]) -> bool:
    loops = [part for part in parts if isinstance(part, ast.For | ast.While)]
    return any(isinstance(part, ast.YieldFrom) for part in parts) or any(
        isinstance(inner, ast.Yield) for part in loops for inner in ast.walk(part)
    )
