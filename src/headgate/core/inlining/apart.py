"""Loops over tuples that are taken apart: the body reads their items, and no tuple is made.

Law: where a body reads an item by its number, it reads the variable of that place; if it does
anything else with the record, the loop puts the tuple together for it. A number that the tuples do
not have is left to loops over records, where it fails as it should.
"""

import ast
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from headgate.base.elements import Record
from headgate.base.fields import RecordFields
from headgate.core.inlining.bodies import InlineBody, stored_names
from headgate.core.state.key_taking import RecordPart

L = TypeVar("L")

Shape = tuple[bool, ...]
"""Which places of the tuples have lists; the others are the same in all of them."""


@dataclass(frozen=True, slots=True)
class ApartLoop:
    """How a loop goes over tuples of one shape."""

    body: InlineBody
    """Reads items in the place of the record."""
    shape: Shape
    key: int
    lists: tuple[int, ...]
    """The places over which it goes, the first one for sure."""
    same: tuple[int, ...]
    """Those that it takes as they are."""
    makes_tuples: bool

    @property
    def whole(self) -> str:
        """The tuple, put together."""
        return f"({', '.join(map(item_name, range(len(self.shape))))},)"

    def arguments(self, fields: RecordFields, *more: list[Record]) -> list[Record]:
        """What a loop takes first: its lists, with ``more`` beside them, and what is the same."""
        places = fields.places
        lists = [places[place] for place in self.lists]
        return [*lists, *more, *(places[place][0] for place in self.same)]


def item_name(place: int) -> str:
    """The variable of a place."""
    return f"_hg_item_at{place}"


def shape_of(fields: RecordFields) -> Shape:
    """Which places of these have lists."""
    return tuple([type(place) is list for place in fields.places])


def apart_loop(
    body: InlineBody, record: str, shape: Shape, part: RecordPart | None, *, all_places: bool
) -> ApartLoop | None:
    """How a body with this parameter for the record goes over tuples; None: it cannot.

    ``all_places``: the loop itself needs the tuples now and then.
    """
    key = None if part is None or part.is_attribute else _place(part.name, len(shape))
    if key is None or record in stored_names(body.statements):
        return None
    items = _Items(record, len(shape))
    statements = tuple(items.visit(deepcopy(statement)) for statement in body.statements)
    if items.is_beyond:
        return None
    used = range(len(shape)) if all_places or items.is_whole else sorted({key, *items.places})
    lists = [place for place in used if shape[place]] or [shape.index(True)]
    return ApartLoop(
        body=replace(body, statements=statements),
        shape=shape,
        key=key,
        lists=tuple(lists),
        same=tuple(place for place in used if not shape[place]),
        makes_tuples=items.is_whole,
    )


def _place(name: Record, length: int) -> int | None:
    """The place with this number, which may count from the end."""
    if type(name) is not int or not -length <= name < length:
        return None
    return name % length


class _Items(ast.NodeTransformer):
    """Puts variables in the place of ``record[0]``."""

    def __init__(self, record: str, length: int) -> None:
        self.places: set[int] = set()
        self.is_whole = False
        """The record is used in another way."""
        self.is_beyond = False
        """There is no such item."""
        self._record = record
        self._length = length

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        value, number = node.value, _number(node.slice)
        if not isinstance(value, ast.Name) or value.id != self._record or number is None:
            return self.generic_visit(node)
        place = _place(number, self._length)
        if place is None or not isinstance(node.ctx, ast.Load):
            self.is_beyond = True
            return node
        self.places.add(place)
        return ast.copy_location(ast.Name(item_name(place), ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.is_whole = self.is_whole or node.id == self._record
        return node


def _number(index: ast.expr) -> int | None:
    match index:
        case ast.Constant(value=number) if type(number) is int:
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)) if type(number) is int:
            return -number
        case _:
            return None


def names_of(places: Iterable[int]) -> list[str]:
    """What templates call the items, without the prefix of the loop's names."""
    return [item_name(place).removeprefix("_hg_") for place in places]


MOST_SHAPES: Final = 8
"""Tuples of more shapes are put together: to compile a loop takes milliseconds."""


class ApartLoops(Generic[L]):
    """The loops of one function over tuples that are taken apart, made when they are needed."""

    def __init__(self, make: Callable[[Shape], L | None]) -> None:
        self._make = make
        self._made: dict[Shape, L | None] = {}

    def loop_for(self, fields: RecordFields) -> L | None:
        """None: the function takes them as records."""
        shape = shape_of(fields)
        if shape not in self._made:
            if len(self._made) >= MOST_SHAPES:
                return None
            self._made[shape] = self._make(shape)
        return self._made[shape]
