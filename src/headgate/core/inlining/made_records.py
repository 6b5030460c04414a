"""Records that a function makes in the expression that it returns or yields.

A tuple or a dict that is written down, and an instance whose ``__init__`` puts its arguments into
attributes and does nothing else, is new: nobody holds it, and it holds what the expression says.
Law: a record that is recognised has the fields of its shape, with the values of ``items``, and no
code of the user's runs while it is made of them.
"""

import ast
import dis
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Final

from headgate.base.fields import PLAIN_KINDS, TUPLES, FieldShape
from headgate.base.layouts import layout_of
from headgate.base.shapes import field_shape, is_row

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

    def made_of(self, names: Mapping[int, str]) -> ast.expr:
        """The expression that makes the record of these variables, by place."""
        items: list[ast.expr] = [
            ast.Name(names[place], ast.Load()) for place in range(len(self.items))
        ]
        keys: list[ast.expr | None] = [ast.Constant(name) for name in self.shape.names]
        if self.shape.is_row and self.maker is not None:
            maker = ast.Attribute(self.maker, "__headgate_of_fields__", ast.Load())
            return ast.Call(func=maker, args=[ast.Dict(keys=keys, values=items)], keywords=[])
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
    parameters: tuple[str, ...]
    """Of ``__init__``, in the order of the fields that they become."""
    order: tuple[str, ...]
    """The same in the order of arguments."""
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
    shape = field_shape(kind, tuple(attributes.values()))
    layout = layout_of(kind)
    if shape is None or layout is None or not layout.takes_assignments:
        return None
    code = init.__code__
    order = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    given = init.__defaults__ or ()
    optional = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    defaults = {**dict(zip(optional, given, strict=True)), **(init.__kwdefaults__ or {})}
    return AssigningClass(kind, init, shape, tuple(attributes), order, defaults)


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
    places = {name: place for place, name in enumerate(found.parameters)}
    return MadeRecord(
        found.shape,
        {places[name]: item for name, item in given.items()},
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


def _assigned(code: CodeType) -> dict[str, str] | None:
    """Attributes by the parameters that ``__init__`` assigns to them, in order; None: it does more.

    Each parameter becomes one attribute.
    """
    if code.co_flags & (_HAS_ARGS | _HAS_KEYWORDS):
        return None
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(code.co_varnames) != len(parameters) or not parameters:
        return None
    found: dict[str, str] = {}
    stack: list[object] = []
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_FAST"):
            stack += step.argval if isinstance(step.argval, tuple) else [step.argval]
        elif step.opname == "STORE_ATTR":
            if len(stack) != 2 or stack[1] != parameters[0] or stack[0] in found:
                return None
            found[str(stack[0])] = step.argval
            stack.clear()
        elif step.opname in ("LOAD_CONST", "RETURN_CONST"):
            if step.argval is not None or stack:
                return None
        elif step.opname not in _IDLE:
            return None
    is_whole = found.keys() == {*parameters[1:]} and len({*found.values()}) == len(found)
    return found if is_whole else None


_IDLE: Final = frozenset({"RESUME", "NOP", "COPY_FREE_VARS", "RETURN_VALUE"})
_HAS_ARGS: Final = 0x04
_HAS_KEYWORDS: Final = 0x08
