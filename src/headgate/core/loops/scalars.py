"""Which expressions make scalars out of scalars: numbers, texts, bytes, truth values and None.

Operators of these types give these types, and nobody can change them. Law: an expression that is
recognised has a scalar for its value, or raises, as long as the items of all tuples that it reads
are scalars. Calls are not recognised: what a name means may change while the job runs.
"""

import ast
from collections.abc import Collection
from itertools import chain
from typing import Final

from headgate.base.elements import Record
from headgate.base.fields import PLAIN_KINDS
from headgate.core.loops.bodies import InlineBody

SCALARS: Final = PLAIN_KINDS | {complex}
"""The kinds, and no subclasses, which may have operators of their own."""


def makes_scalar_tuples(body: InlineBody, tuples: Collection[str], items: Collection[str]) -> bool:
    """Whether all that a function does is to return a new tuple of scalars.

    ``tuples``: variables that are tuples of scalars. ``items``: variables that are scalars.
    """
    value = body.expression
    if not isinstance(value, ast.Tuple):
        return False
    known = _Scalars(set(tuples), set(items))
    return all(map(known.include, value.elts))


def are_scalar_tuples(values: Collection[Record]) -> bool:
    """Whether these are tuples, and all that they hold are scalars."""
    return {tuple}.issuperset(map(type, values)) and SCALARS.issuperset(
        map(type, chain.from_iterable(values))
    )


class _Scalars:
    """Expressions over certain variables that make scalars."""

    def __init__(self, tuples: set[str], items: set[str]) -> None:
        self._tuples = tuples
        self._items = items

    def include(self, part: ast.expr) -> bool:
        match part:
            case ast.Constant(value=value):
                return type(value) in SCALARS
            case ast.Name(id=name):
                return name in self._items
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in self._tuples:
                return self.include(index)  # a slice would be a tuple
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                bounds = [bound for bound in (lower, upper, step) if bound is not None]
                return all(map(self.include, [value, *bounds]))
            case ast.Subscript(value=value, slice=index):
                return self.include(value) and self.include(index)
            case ast.BinOp(left=left, right=right):
                return self.include(left) and self.include(right)
            case ast.UnaryOp(operand=operand):
                return self.include(operand)
            case ast.BoolOp(values=values):
                return all(map(self.include, values))
            case ast.Compare(left=left, comparators=others):
                return all(map(self.include, [left, *others]))
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return all(map(self.include, [test, then, otherwise]))
            case _:
                return False
