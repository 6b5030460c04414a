"""Which bodies of functions can be written into a loop, statement by statement.

In a loop the variables of one record are still there at the next, ``return`` must mean the next
record, and nothing may outlive its turn. Law: a body that is accepted reads no variable that it has
not assigned for this record, keeps none in a closure, and leaves only at its end or by ``return``.
What is not accepted is called, as ever.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Final

from headgate.core.loops.definitions import FunctionNode

PREFIX: Final = "_hg_"
"""The prefix of the loop's own names."""

MOST_PARTS: Final = 2000
MOST_LEVELS: Final = 40
"""Larger bodies are called: the call is a small part of their time, and copying trees recurses."""


@dataclass(frozen=True, slots=True)
class InlineBody:
    """What a function does with its parameters."""

    function: FunctionType
    parameters: tuple[str, ...]
    statements: tuple[ast.stmt, ...]
    """A lambda is one ``return``."""
    yields: bool

    @property
    def expression(self) -> ast.expr | None:
        """What the function returns, if it does nothing else."""
        if len(self.statements) == 1 and isinstance(self.statements[0], ast.Return):
            return self.statements[0].value
        return None


def inline_body(function: FunctionType, node: FunctionNode) -> InlineBody | None:
    """None: the function has to be called."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        return None
    parameters = tuple(argument.arg for argument in arguments.posonlyargs + arguments.args)
    if any(name.startswith(PREFIX) for name in parameters) or not _is_small(node):
        return None
    if isinstance(node, ast.Lambda):
        statements: tuple[ast.stmt, ...] = (
            ast.copy_location(ast.Return(value=node.body), node.body),
        )
    else:
        statements = _without_docstring(node.body)
    yields = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in _parts(statements))
    if not all(map(_is_allowed, _parts(statements))) or not _yields_alone(statements):
        return None
    if _returns_from_loops(statements) or not _ReadsAssigned(statements).hold(parameters):
        return None
    return InlineBody(function, parameters, statements, yields)


def always_leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether the end of these statements is never reached."""
    last = statements[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and always_leaves(last.body) and always_leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def stored_names(statements: Iterable[ast.stmt]) -> set[str]:
    """The variables that a body assigns."""
    return {name for statement in statements for name in _names_stored(statement)}


def names_in(statements: Iterable[ast.stmt]) -> set[str]:
    """Every name that a body reads or assigns."""
    return {part.id for part in _parts(statements) if isinstance(part, ast.Name)}


def _names_stored(part: ast.AST) -> set[str]:
    return {
        name.id
        for name in ast.walk(part)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def _parts(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _without_docstring(body: Sequence[ast.stmt]) -> tuple[ast.stmt, ...]:
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        body = body[1:]
    return tuple(body) or (ast.copy_location(ast.Pass(), first),)


def _is_small(node: ast.AST) -> bool:
    """Looks level by level, so that it never recurses."""
    parts, level = 0, [node]
    for _ in range(MOST_LEVELS):
        parts += len(level)
        level = [child for part in level for child in ast.iter_child_nodes(part)]
        if not level or parts > MOST_PARTS:
            break
    return not level and parts <= MOST_PARTS


def _is_allowed(part: ast.AST) -> bool:
    if isinstance(part, ast.Name):
        return part.id not in FRAME_READERS and not part.id.startswith(PREFIX)
    if isinstance(part, ast.Attribute):
        return part.attr not in ("locals", "_getframe", "currentframe")
    if isinstance(part, ast.AnnAssign) and part.value is None:
        return False  # it assigns nothing
    return isinstance(part, _ALLOWED)


def _yields_alone(statements: Iterable[ast.stmt]) -> bool:
    """Whether nobody asks what a ``yield`` answers."""
    alone = {
        part.value
        for part in _parts(statements)
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Yield | ast.YieldFrom)
    }
    return all(
        part in alone for part in _parts(statements) if isinstance(part, ast.Yield | ast.YieldFrom)
    )


def _returns_from_loops(statements: Iterable[ast.stmt]) -> bool:
    loops = [part for part in _parts(statements) if isinstance(part, ast.For | ast.While)]
    return any(isinstance(part, ast.Return) for part in _parts(loops))


class _ReadsAssigned:
    """Whether every variable is assigned before it is read, whatever way is taken."""

    def __init__(self, statements: Sequence[ast.stmt]) -> None:
        self._statements = statements
        self._variables = stored_names(statements)
        self._holds = True

    def hold(self, parameters: Iterable[str]) -> bool:
        self._variables.update(parameters)
        self._follow(self._statements, set(parameters))
        return self._holds

    def _follow(self, statements: Sequence[ast.stmt], assigned: set[str]) -> set[str]:
        """The variables that are assigned after the statements, if their end is reached."""
        for statement in statements:
            match statement:
                case ast.If():
                    self._read(statement.test, assigned)
                    assigned = self._follow_branches(statement, assigned)
                case ast.For():
                    self._read(statement.iter, assigned)
                    self._read(statement.target, assigned)
                    self._follow(statement.body, assigned | _names_stored(statement.target))
                    self._follow(statement.orelse, set(assigned))
                case ast.While():
                    self._read(statement.test, assigned)
                    self._follow(statement.body, set(assigned))
                    self._follow(statement.orelse, set(assigned))
                case _:
                    self._read(statement, assigned)
                    assigned = assigned | _names_stored(statement)
        return assigned

    def _follow_branches(self, statement: ast.If, assigned: set[str]) -> set[str]:
        ways = []
        for branch in (statement.body, statement.orelse):
            after = self._follow(branch, set(assigned))
            if not branch or not always_leaves(branch):
                ways.append(after)
        return set.intersection(*ways) if ways else set(self._variables)

    def _read(self, part: ast.AST, assigned: set[str]) -> None:
        read = {
            name.id
            for name in ast.walk(part)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
        }
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            read.add(part.target.id)
        if not read & self._variables <= assigned:
            self._holds = False


FRAME_READERS: Final = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "super", "__class__", "breakpoint"}
    | {"_getframe", "currentframe"}
)
"""They see the frame that they are called in, which would be the loop's."""

_ALLOWED: Final = (
    *(ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.While),
    *(ast.Return, ast.Raise, ast.Assert, ast.Pass, ast.Break, ast.Continue),
    *(ast.Yield, ast.YieldFrom, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare),
    *(ast.Dict, ast.Set, ast.List, ast.Tuple, ast.Starred, ast.Subscript, ast.Slice),
    *(ast.Call, ast.keyword, ast.Attribute, ast.Constant, ast.JoinedStr, ast.FormattedValue),
    *(ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
)
