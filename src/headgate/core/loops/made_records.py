"""Records that a function makes in the expression that it returns or yields.

A tuple or a dict that is written down, and an instance whose ``__init__`` puts its arguments into
attributes and does nothing else, is new: nobody holds it, and it holds what the expression says.
Law: a record that is recognised has the fields of its shape, with the values of ``items``, and no
code of the user's runs while it is made of them.
"""

import ast
import dis
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Final

from headgate.base.fields import PLAIN_KINDS, TUPLES, FieldShape, Same
from headgate.base.layouts import layout_of
from headgate.base.shapes import field_shape, is_row
from headgate.core.loops.bodies import InlineBody, names_in

MOST_ITEMS: Final = 8
"""Tuples with more items are looked at by a call."""

MOST_FIELDS: Final = 16
"""So are other records with more fields."""


@dataclass(frozen=True, slots=True)
class MadeRecord:
    """One expression that makes a record."""

    shape: FieldShape
    items: Mapping[int, ast.expr]
    """By place, in the order in which they are evaluated."""
    maker: ast.expr | None = None
    """The class, of an instance."""
    positional: tuple[int, ...] = ()
    """The places of its positional arguments, in order."""
    named: Mapping[str, int] = field(default_factory=dict)
    """And those of the others."""
    is_assigned: bool = False
    """Fields were assigned after it was made: the class alone does not make it."""

    def made_of(self, names: Mapping[int, str]) -> ast.expr:
        """The expression that makes the record of these variables, by place."""
        items: list[ast.expr] = [
            ast.Name(names[place], ast.Load()) for place in range(len(self.items))
        ]
        keys: list[ast.expr | None] = [ast.Constant(name) for name in self.shape.names]
        if self.shape.is_row and self.maker is not None:
            maker = ast.Attribute(self.maker, "__headgate_of_fields__", ast.Load())
            return ast.Call(func=maker, args=[ast.Dict(keys=keys, values=items)], keywords=[])
        if self.maker is not None and self.is_assigned:
            keys_of = ast.Tuple([ast.Constant(name) for name in self.shape.names], ast.Load())
            fill, values = ast.Name("_hg_filled", ast.Load()), ast.Tuple(items, ast.Load())
            return ast.Call(func=fill, args=[self.maker, keys_of, values], keywords=[])
        if self.maker is not None:
            arguments = [items[place] for place in self.positional]
            named = [ast.keyword(name, items[place]) for name, place in self.named.items()]
            return ast.Call(func=self.maker, args=arguments, keywords=named)
        if self.shape.kind is dict:
            return ast.Dict(keys=keys, values=items)
        return ast.Tuple(elts=items, ctx=ast.Load())


@dataclass(frozen=True, slots=True)
class AssigningClass:
    """A class whose ``__init__`` only assigns its parameters to attributes."""

    kind: type
    init: FunctionType
    shape: FieldShape
    parameters: tuple[str | Same, ...]
    """What each field is assigned, in order: a parameter of ``__init__``, or a constant."""
    order: tuple[str, ...]
    """The parameters in the order of arguments."""
    defaults: Mapping[str, object]


@dataclass(slots=True)
class RecordMakers:
    """Recognises what one function makes; the classes must be the same when the code runs."""

    function: FunctionType
    _classes: dict[str, AssigningClass | None] = field(default_factory=dict)

    def hold(self) -> bool:
        """Whether the names still mean the classes that were looked at, and these are the same."""
        names = self.function.__globals__
        return all(
            names.get(name) is found.kind and vars(found.kind).get("__init__") is found.init
            for name, found in self._classes.items()
            if found is not None
        )

    def made(self, value: ast.expr | None) -> MadeRecord | None:
        """None: it is not known to be a new record, or has too many fields."""
        match value:
            case ast.Tuple(elts=elts) if 0 < len(elts) <= MOST_ITEMS:
                if any(isinstance(item, ast.Starred) for item in elts):
                    return None
                return MadeRecord(TUPLES, dict(enumerate(elts)))
            case ast.Dict(keys=keys, values=values) if 0 < len(keys) <= MOST_FIELDS:
                names = [key.value for key in keys if isinstance(key, ast.Constant)]
                if len({*names}) != len(keys) or not {str}.issuperset(map(type, names)):
                    return None
                shape = field_shape(dict, tuple(map(str, names)))
                return None if shape is None else MadeRecord(shape, dict(enumerate(values)))
            case WrittenDown(made=made):
                return made
            case ast.Call(func=ast.Name(id=name)):
                found = self._class(name)
                if found is None:
                    return None
                return _row(value, found.kind) if found.shape.is_row else _instance(value, found)
            case _:
                return None

    def _class(self, name: str) -> AssigningClass | None:
        code = self.function.__code__
        if name in code.co_varnames or name in code.co_freevars or name in code.co_cellvars:
            return None
        if name not in self._classes:
            self._classes[name] = assigning_class(self.function.__globals__.get(name))
        return self._classes[name]


def assigning_class(kind: object) -> AssigningClass | None:
    """None: it is no class, or its instances are made by more than assignments."""
    if not isinstance(kind, type) or type(kind) is not type or hasattr(kind, "__del__"):
        return None
    init = vars(kind).get("__init__")
    if not isinstance(init, FunctionType):
        return None
    if is_row(kind):  # each call says the names
        return AssigningClass(kind, init, FieldShape(kind, is_row=True), (), (), {})
    attributes = _assigned(init.__code__)
    if not attributes or len(attributes) > MOST_FIELDS:
        return None
    shape = field_shape(kind, tuple(attributes))
    layout = layout_of(kind)
    if shape is None or layout is None or not layout.takes_assignments:
        return None
    code = init.__code__
    order = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    given = init.__defaults__ or ()
    optional = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    defaults = {**dict(zip(optional, given, strict=True)), **(init.__kwdefaults__ or {})}
    return AssigningClass(kind, init, shape, tuple(attributes.values()), order, defaults)


def _instance(call: ast.Call, found: AssigningClass) -> MadeRecord | None:
    code = found.init.__code__
    positional = code.co_varnames[1 : code.co_argcount]
    if code.co_posonlyargcount > 1 or len(call.args) > len(positional):
        return None
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    given: dict[str, ast.expr] = dict(zip(positional, call.args))  # noqa: B905 - some are left
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given or keyword.arg not in found.order:
            return None
        given[keyword.arg] = keyword.value
    for name in found.order:
        if name not in given:
            if name not in found.defaults or type(found.defaults[name]) not in PLAIN_KINDS:
                return None
            given[name] = ast.Constant(found.defaults[name])  # type: ignore[arg-type]
    places = {name: at for at, name in enumerate(found.parameters) if isinstance(name, str)}
    items = {places[name]: item for name, item in given.items()}
    for place, constant in enumerate(found.parameters):
        if isinstance(constant, Same):
            items[place] = ast.Constant(constant.value)
    return MadeRecord(
        found.shape,
        items,
        call.func,
        tuple(places[name] for name in positional),
        {name: places[name] for name in found.order if name not in positional},
    )


def _row(call: ast.Call, kind: type) -> MadeRecord | None:
    """A row that is made by keywords which become its fields."""
    names = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    if call.args or len(names) < len(call.keywords) or not 0 < len(names) <= MOST_FIELDS:
        return None
    shape = field_shape(kind, tuple(names))
    if shape is None:  # a name is that of a method
        return None
    items = {place: keyword.value for place, keyword in enumerate(call.keywords)}
    return MadeRecord(shape, items, call.func, (), {name: at for at, name in enumerate(names)})


def _assigned(code: CodeType) -> dict[str, str | Same] | None:
    """What ``__init__`` assigns to each attribute, in order; None: it does more.

    That is one of its parameters, each of them once, or a plain constant.
    """
    if code.co_flags & (_HAS_ARGS | _HAS_KEYWORDS):
        return None
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(code.co_varnames) != len(parameters) or not parameters:
        return None
    found: dict[str, str | Same] = {}
    stack: list[str | Same] = []
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_FAST"):
            stack += step.argval if isinstance(step.argval, tuple) else [step.argval]
        elif step.opname == "STORE_ATTR":
            if len(stack) != 2 or stack[1] != parameters[0] or step.argval in found:
                return None
            found[step.argval] = stack[0]
            stack.clear()
        elif step.opname == "LOAD_CONST" and not stack:
            stack.append(Same(step.argval))
        elif step.opname == "RETURN_CONST":
            if step.argval is not None or stack:
                return None
        elif step.opname not in _IDLE:
            return None
    if stack not in ([], [Same(None)]):  # what is returned
        return None
    values = [value for value in found.values() if isinstance(value, str)]
    constants = [value[0] for value in found.values() if isinstance(value, Same)]
    is_whole = sorted(values) == sorted(parameters[1:])
    return found if is_whole and values and PLAIN_KINDS.issuperset(map(type, constants)) else None


class WrittenDown(ast.expr):
    """Stands for a record that was made, and perhaps changed, before it is sent."""

    _fields = ("items",)
    made: MadeRecord
    items: list[ast.expr]
    """The items of ``made``, so that a walk over the tree finds their names."""


def written_down(body: InlineBody, makers: "RecordMakers") -> InlineBody:
    """Rewrite a body so that a record that it makes, fills and sends at its end is never made.

    As in ``event = Event(…)``, ``event.level = …``, ``return event``: its fields are variables.
    What else the body does with the record must be to read its fields.
    """
    for number, statement in enumerate(body.statements):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made = makers.made(value)
                rest = body.statements[number + 1 :]
                if made is None or name in body.parameters or made.shape.is_row:
                    continue
                earlier = body.statements[:number]
                written = _Written(name, made, f"_hg_field_of_{name}_")
                found = written.rewritten(rest)
                if found is not None and name not in names_in(earlier):
                    begun = [
                        ast.copy_location(_assignment(written.name(place), item), statement)
                        for place, item in made.items.items()
                    ]
                    return replace(body, statements=(*earlier, *begun, *found))
            case _:
                pass
    return body


class _Written(ast.NodeTransformer):
    """Puts variables in the place of the fields of a record that a body has made."""

    def __init__(self, record: str, made: MadeRecord, prefix: str) -> None:
        self._record = record
        self._made = made
        self._prefix = prefix
        self._names = [*made.shape.names]
        self._fails = made.shape.kind is tuple

    def name(self, place: int) -> str:
        return f"{self._prefix}{place}"

    def rewritten(self, statements: Sequence[ast.stmt]) -> list[ast.stmt] | None:
        """None: more is done with the record, or it is not sent at the end."""
        if not statements or self._fails:
            return None
        *others, last = map(deepcopy, statements)
        sending = last.value if isinstance(last, ast.Expr) else last
        if not isinstance(sending, ast.Return | ast.Yield):
            return None
        if not isinstance(sending.value, ast.Name) or sending.value.id != self._record:
            return None
        found = [self._statement(statement) for statement in others]
        if self._fails:
            return None
        names = {place: self.name(place) for place in range(len(self._names))}
        items: dict[int, ast.expr] = {
            place: ast.Name(name, ast.Load()) for place, name in names.items()
        }
        shape = field_shape(self._made.shape.kind, tuple(self._names))
        if shape is None or len(self._names) > MOST_FIELDS:
            return None
        made = MadeRecord(shape, items, self._made.maker, is_assigned=True)
        sent = ast.copy_location(WrittenDown(), last)
        sent.made, sent.items = made, [*items.values()]
        sending.value = sent
        return [*found, last]

    def _statement(self, statement: ast.stmt) -> ast.stmt:
        match statement:
            case ast.Assign(targets=[ast.Subscript() as field]) if self._key(field) is not None:
                key = str(self._key(field))
                if key not in self._names:  # a dict gets another one, in all records
                    value = self.visit(statement.value)
                    self._names.append(key)
                    assigned = _assignment(self.name(len(self._names) - 1), value)
                    return ast.copy_location(assigned, statement)
            case _:
                pass
        found: ast.stmt = self.visit(statement)
        return found

    def _key(self, field: ast.expr) -> str | None:
        """Which field of the record this is; None: of another value."""
        match field:
            case ast.Attribute(value=ast.Name(id=name), attr=key):
                is_field = self._made.shape.kind is not dict
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
                is_field = self._made.shape.kind is dict and type(key) is str
            case _:
                return None
        return str(key) if is_field and name == self._record else None

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._read(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._read(node)

    def _read(self, node: ast.Attribute | ast.Subscript) -> ast.AST:
        key = self._key(node)
        if key not in self._names or isinstance(node.ctx, ast.Del):
            return self.generic_visit(node)
        variable = ast.Name(self.name(self._names.index(str(key))), node.ctx)
        return ast.copy_location(variable, node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self._fails = self._fails or node.id == self._record
        return node


def _assignment(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def filled(kind: type, names: Sequence[str], values: Sequence[object]) -> object:
    """An instance with these attributes, of a class whose ``__init__`` only assigns."""
    record: object = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        setattr(record, name, value)
    return record


_IDLE: Final = frozenset({"RESUME", "NOP", "COPY_FREE_VARS", "RETURN_VALUE"})
_HAS_ARGS: Final = 0x04
_HAS_KEYWORDS: Final = 0x08
