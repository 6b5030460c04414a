"""Loops over records that are taken apart: the body reads their fields, and no record is made.

Law: where a body reads a field of the record, it reads the variable of that place. If it does
anything else with a tuple, the loop puts the tuple together for it. With a dict or an instance,
which it might change, and with a field that the records do not have, it is left to loops over
records.
"""

import ast
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, TypeVar

from headgate.base.elements import Record
from headgate.base.fields import FieldShape, RecordFields
from headgate.core.loops.bodies import InlineBody, stored_names
from headgate.core.state.key_taking import KeyForm

L = TypeVar("L")


class FieldForm(NamedTuple):
    """What a loop has to know of the fields that it goes over."""

    shape: FieldShape
    has_list: tuple[bool, ...]
    """Which places have lists; the others are the same in all records."""


@dataclass(frozen=True, slots=True)
class ApartLoop:
    """How a loop goes over records of one form."""

    body: InlineBody
    """Reads fields in the place of the record."""
    form: FieldForm
    key: int | None
    """The place that is the key; None: the loop takes a list of keys beside those of items."""
    lists: tuple[int, ...]
    """The places over which it goes, the first one for sure."""
    same: tuple[int, ...]
    """The places that are the same in all records: passed as single values."""
    makes_records: bool

    @property
    def whole(self) -> str:
        """The record, put together."""
        items = [item_name(place) for place in range(len(self.form.has_list))]
        if self.form.shape.kind is tuple:
            return f"({', '.join(items)},)"
        if self.form.shape.kind is dict:
            pairs = zip(self.form.shape.names, items, strict=True)
            return f"{{{', '.join(f'{name!r}: {item}' for name, item in pairs)}}}"
        return f"_hg_make([{', '.join(f'({item},)' for item in items)}])[0]"

    @property
    def given(self) -> dict[str, object]:
        """What ``whole`` uses."""
        return {"make": self.form.shape.make}

    def arguments(self, fields: RecordFields, *more: list[Record]) -> list[Record]:
        """What a loop takes first: its lists, with ``more`` beside them, and what is the same."""
        places = fields.places
        lists = [places[place] for place in self.lists]
        return [*lists, *more, *(places[place][0] for place in self.same)]


def item_name(place: int) -> str:
    """The variable of a place."""
    return f"_hg_item_at{place}"


def form_of(fields: RecordFields) -> FieldForm:
    """Their shape, and which places of these have lists."""
    return FieldForm(fields.shape, tuple([type(place) is list for place in fields.places]))


def apart_loop(
    body: InlineBody, record: str, form: FieldForm, key_form: KeyForm, *, all_places: bool
) -> ApartLoop | None:
    """How a body with this parameter for the record goes over fields; None: it cannot.

    ``all_places``: the loop itself needs the records now and then.
    """
    shape, has_list = form
    count = len(has_list)
    key_places = key_form.places(shape, count)
    if key_places is None or record in stored_names(body.statements):
        return None
    key = None if key_form.part is None else key_places[0]
    items = FieldReads(record, shape, count)
    statements = tuple(items.visit(deepcopy(statement)) for statement in body.statements)
    if items.is_beyond or (items.is_whole and shape.kind is not tuple):
        return None  # a record that can be changed has to be one
    read = items.places if key is None else {key, *items.places}
    used = range(count) if all_places or items.is_whole else sorted(read)
    lists = [place for place in used if has_list[place]] or [has_list.index(True)]
    return ApartLoop(
        body=replace(body, statements=statements),
        form=form,
        key=key,
        lists=tuple(lists),
        same=tuple(place for place in used if not has_list[place]),
        makes_records=items.is_whole,
    )


class FieldReads(ast.NodeTransformer):
    """Puts variables in the place of ``record[0]``, ``record["name"]`` or ``record.name``."""

    def __init__(
        self,
        record: str,
        shape: FieldShape,
        count: int,
        name_of: Callable[[int], str] = item_name,
    ) -> None:
        """``name_of``: the variable of a place."""
        self.places: set[int] = set()
        self.is_whole = False
        """The record is used in another way."""
        self.is_beyond = False
        """There is no such field, or it is assigned."""
        self._record = record
        self._shape = shape
        self._count = count
        self._name_of = name_of

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = _constant(node.slice)
        if not self._is_record(node.value) or name is None or self._is_instance:
            return self.generic_visit(node)
        return self._field(node, name, is_attribute=False)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not self._is_record(node.value) or not self._is_instance:
            return self.generic_visit(node)
        if node.attr not in self._shape.names:  # a method, or an attribute of the class
            return self.generic_visit(node)
        return self._field(node, node.attr, is_attribute=True)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.is_whole = self.is_whole or node.id == self._record
        return node

    @property
    def _is_instance(self) -> bool:
        return self._shape.kind not in (tuple, dict)

    def _is_record(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._record

    def _field(
        self, node: ast.Subscript | ast.Attribute, name: int | str, is_attribute: bool
    ) -> ast.AST:
        place = self._shape.place(name, is_attribute, self._count)
        if place is None or not isinstance(node.ctx, ast.Load):
            self.is_beyond = True
            return node
        self.places.add(place)
        return ast.copy_location(ast.Name(self._name_of(place), ast.Load()), node)


def _constant(index: ast.expr) -> int | str | None:
    """The number or text that a field is read by; None: it is something else."""
    match index:
        case ast.Constant(value=name) if type(name) in (int, str):
            return name  # type: ignore[return-value]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)) if type(number) is int:
            return -number
        case _:
            return None


def names_of(places: Iterable[int]) -> list[str]:
    """What templates call the items, without the prefix of the loop's names."""
    return [item_name(place).removeprefix("_hg_") for place in places]


MOST_FORMS: Final = 8
"""Records of more forms are put together: to compile a loop takes milliseconds."""


class ApartLoops(Generic[L]):
    """The loops of one function over records that are taken apart, made when they are needed."""

    def __init__(self, make: Callable[[FieldForm], L | None]) -> None:
        self._make = make
        self._made: dict[FieldForm, L | None] = {}

    def loop_for(self, fields: RecordFields) -> L | None:
        """None: the function takes them as records."""
        form = form_of(fields)
        if form not in self._made:
            if len(self._made) >= MOST_FORMS:
                return None
            self._made[form] = self._make(form)
        return self._made[form]
