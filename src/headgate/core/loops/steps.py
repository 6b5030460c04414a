"""Maps and filters that follow a function in its loop, and only read what they are given.

A record goes through all steps before the function is called for the next one. What a function has
made in one shape need not be made for them: they read its fields where they lie. Law: a step gives
what a call would give, runs no code that could keep or change its record, and so needs none of its
own; what leaves the last step is looked at as any result is.
"""

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MethodType
from typing import Final, NoReturn

from headgate.base.elements import Record
from headgate.core.loops.apart import FieldReads
from headgate.core.loops.bodies import PREFIX, InlineBody, names_in
from headgate.core.loops.made_records import MadeRecord, RecordMakers


@dataclass(frozen=True, slots=True)
class Step:
    """A map or a filter in the loop of another function."""

    body: InlineBody
    is_filter: bool
    again: Callable[[Record], NoReturn]
    """Run the operator itself for a record for which the step has failed, to fail as it does."""
    makers: RecordMakers
    """Recognises the records that a map makes."""
    owner: object = None
    """What ``self`` is."""
    builtins: tuple[str, ...] = ()
    """Names that mean Python's own."""

    def holds(self) -> bool:
        """Whether names mean what they meant when the step was found."""
        names = self.body.function.__globals__
        return self.makers.hold() and not any(name in names for name in self.builtins)

    @property
    def parameter(self) -> str:
        return self.body.parameters[-1]

    @property
    def expression(self) -> ast.expr:
        """What the function returns; it does nothing else."""
        found = self.body.expression
        assert found is not None, "a step is one expression"
        return found

    def reads(self, made: MadeRecord, names: Mapping[int, str]) -> ast.expr | None:
        """The expression over the fields of a record that is not made; None: it needs the record.

        ``names``: the variables of the fields, by place.
        """
        reading = FieldReads(self.parameter, made.shape, len(made.items), names.__getitem__)
        found = reading.visit(deepcopy(self.expression))
        return None if reading.is_beyond or reading.is_whole else _without_lines(found)

    def over(self, variable: str) -> ast.expr:
        """The expression over the record in a variable."""
        record = {self.parameter: ast.Name(variable, ast.Load())}
        return _without_lines(_Placed(record).visit(deepcopy(self.expression)))


def step_of(
    call: object, body: InlineBody | None, is_filter: bool, again: Callable[[Record], NoReturn]
) -> Step | None:
    """None: the function has to be called, or does more than to read its record."""
    if body is None or body.expression is None or body.function.__closure__:
        return None
    owner = call.__self__ if isinstance(call, MethodType) else None
    names = body.function.__globals__
    own = [name for name in names_in(body.statements) - {*body.parameters} if name not in names]
    if not all(hasattr(builtins, name) for name in own):
        return None
    step = Step(body, is_filter, again, RecordMakers(body.function), owner, tuple(own))
    made = None if is_filter else step.makers.made(body.expression)
    read = [body.expression] if made is None else list(made.items.values())
    return step if all(_only_reads(part, step.parameter, names) for part in read) else None


def placed(
    step: Step, number: int, names: Mapping[str, object], taken: Collection[str]
) -> tuple[Step, dict[str, object]]:
    """The step in the loop of another function, and what that loop has to be given for it.

    ``number``: among the steps of the loop; ``names``: the globals of the loop; ``taken``: names
    that mean something else there.
    """
    given: dict[str, object] = {}
    expressions: dict[str, ast.expr] = {}
    own = step.body.function.__globals__
    if len(step.body.parameters) > 1:
        expressions[step.body.parameters[0]] = _own(f"self{number}")
        given[f"self{number}"] = step.owner
    for name in names_in(step.body.statements) - {*step.body.parameters}:
        if name in own and (own is not names or name in taken):
            place = ast.Subscript(_own(f"names{number}"), ast.Constant(name), ast.Load())
            expressions[name] = place
            given[f"names{number}"] = own
        elif name not in own and (own is not names or name in taken):
            expressions[name] = _own(f"builtin_{name}")
            given[f"builtin_{name}"] = getattr(builtins, name)
    statement = _Placed(expressions).visit(deepcopy(step.body.statements[0]))
    body = replace(step.body, parameters=step.body.parameters[-1:], statements=(statement,))
    return replace(step, body=body, owner=None), given


def _own(name: str) -> ast.Name:
    return ast.Name(f"{PREFIX}{name}", ast.Load())


def _only_reads(part: ast.expr, record: str, names: Mapping[str, object]) -> bool:
    """Whether an expression runs no code that is handed the record, but for operators."""
    match part:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            is_harmless = name in HARMLESS and name not in names and hasattr(builtins, name)
            return is_harmless and all(_only_reads(item, record, names) for item in arguments)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments, keywords=[]):
            parts = [value, *arguments]
            return name in HARMLESS_METHODS and all(_only_reads(x, record, names) for x in parts)
        case ast.Call() | ast.Starred():
            return False
        case ast.Name(id=name):
            return True
        case _:
            return all(_only_reads(inner, record, names) for inner in _expressions(part))


def _expressions(part: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(part):
        if isinstance(child, ast.expr):
            yield child
        else:
            yield from _expressions(child)


HARMLESS: Final = frozenset(
    {"abs", "bool", "bytes", "chr", "divmod", "float", "format", "int", "isinstance", "len"}
    | {"max", "min", "ord", "repr", "round", "str", "sum", "tuple"}
)
HARMLESS_METHODS: Final = frozenset(
    {"startswith", "endswith", "lower", "upper", "strip", "lstrip", "rstrip", "casefold", "split"}
    | {"rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "isdigit", "isalpha"}
    | {"isalnum", "isspace", "splitlines", "zfill"}
)
"""Methods of texts; a class of the user's hardly keeps or changes anything in one of this name."""


class _Placed(ast.NodeTransformer):
    def __init__(self, expressions: Mapping[str, ast.expr]) -> None:
        self._expressions = expressions

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self._expressions.get(node.id)
        return node if found is None else deepcopy(found)


def _without_lines(expression: ast.expr) -> ast.expr:
    """It stands in the line of the function that it follows; what fails is run again elsewhere."""
    for node in ast.walk(expression):
        for attribute in ("lineno", "end_lineno", "col_offset", "end_col_offset"):
            vars(node).pop(attribute, None)
    return expression
