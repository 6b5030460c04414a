"""Loops with the body of a user's function in the place of its call.

The loops are written as text and compiled for each function with its own statements in them, in its
own file, lines and globals: an error has the user's traceback, a breakpoint holds. Law: a loop does
for each record what a call of the function would do, in the same order, and a result that can be
changed is made the receiver's own before the next statement runs. The loop's own names have a
prefix, so that they hide none of the user's.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import Enum
from itertools import repeat
from textwrap import indent
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Final, TypeAlias, cast

from headgate.base.elements import Record
from headgate.base.fields import TUPLES, FieldShape, Same
from headgate.base.values import ATOMS, SOLE_HOLDER
from headgate.core.loops.apart import ApartLoop, item_name, names_of
from headgate.core.loops.bodies import (
    PREFIX,
    InlineBody,
    always_leaves,
    inline_body,
    names_in,
    stored_names,
)
from headgate.core.loops.definitions import (
    Definition,
    compile_within,
    find_node,
    function_node,
    plain_function,
)
from headgate.core.loops.emissions import (
    NOTHING_FOLLOWS,
    Answering,
    Folding,
    Following,
    Judging,
    LoopRecord,
    Placing,
    Returning,
    ScalarFolding,
    Sending,
    Yielding,
    common_places,
    list_name,
    statements_of,
)
from headgate.core.loops.made_records import MadeRecord, RecordMakers, filled
from headgate.core.loops.scalars import makes_scalar_tuples
from headgate.core.loops.state_calls import StateCalls
from headgate.core.loops.steps import Step, placed
from headgate.core.state.key_taking import RecordPart
from headgate.functions.function import OutputTag

Loop: TypeAlias = Callable[..., Record]
"""A compiled loop; what it takes is said where it is made."""

SOURCE: Final = f"{PREFIX}source"
"""The iterator of the records in every loop: where it stands is the record at hand, for errors."""

LOOPED: Final = f"{PREFIX}records"
"""What every loop goes over first: the list of records, or of what they have in one place."""

_FROM: Final = f"{SOURCE} = _hg_iter({LOOPED})"

_TAKE_KEY: Final = """
    try:
        _hg_key = _hg_KEY
    except _hg_exception:
        _hg_key = _hg_key_of(_hg_RECORD)
"""
"""If the part of the record is not there, the selector itself fails, where the user can see it."""

_LOOK_AT_KEY: Final = """
    if _hg_type(_hg_key) is not _hg_key_kind:
        _hg_key, _hg_key_kind = _hg_see(_hg_key)
"""

_FIND: Final = """
    try:
        _hg_BEFORE = _hg_values[_hg_key]
    except _hg_not_found:
        _hg_key, _hg_BEFORE = _hg_find(_hg_key)
        if _hg_BEFORE is _hg_absent:
            _hg_begin(_hg_key, _hg_RECORD)
            continue
"""

_REDUCE: Final = f"""{_FIND}
    if _hg_BEFORE is _hg_none:
        _hg_BEFORE = None
    _hg_BODY
"""

_REDUCE_SCALARS: Final = f"{_FIND}\n    _hg_BODY"

_SEND: Final = "_hg_send = _hg_sent.append\n"


def _taken_from(records: list[Record]) -> Iterator[Record]:
    """The records of a list that nobody else has, which holds none of them any more once taken."""
    records.reverse()
    return map(list.pop, repeat(records, len(records)))


_BUILTINS: Final = {
    "iter": iter,
    "references": sys.getrefcount,
    "type": type,
    "tuple": tuple,
    "len": len,
    "map": map,
    "are_atoms": ATOMS.issuperset,
    "zip": zip,
    "exception": Exception,
    "failures": (Exception, SystemExit),
    "filled": filled,
    "isinstance": isinstance,
    "list": list,
    "taken_from": _taken_from,
    "tag": OutputTag,
    "generator": GeneratorType,
    "not_found": (KeyError, TypeError),
}


def body_of(call: object, parameters: int, definitions: Iterable[Definition]) -> InlineBody | None:
    """What can be written into a loop of a function with so many parameters; None: call it."""
    function = plain_function(call)
    node = None if function is None else find_node(function, definitions)
    if function is None or node is None:
        return None
    body = inline_body(function, node)
    bound = 1 if isinstance(call, MethodType) else 0
    if body is None or len(body.parameters) != parameters + bound:
        return None
    if set(body.parameters[:bound]) & stored_names(body.statements):
        return None  # ``self`` is set once for all records
    return body


def reduce_loop(
    call: object,
    body: InlineBody,
    makers: RecordMakers,
    given: dict[str, object],
    *,
    by_value: bool,
    skips_failures: bool = False,
    part: RecordPart | None = None,
    apart: ApartLoop | None = None,
) -> Loop | None:
    """``loop(records[, keys], values, begin, find, sent)`` folds records by their keys.

    ``sent`` is the list that results are added to. ``given``: as for ``emitting_loop``, and
    ``absent``, ``none``. ``by_value``: what is sent does not change when a result is changed in
    place. ``part``: where a record has its key; the list of keys is left out then, and ``given``
    has ``key_of``. So it is with ``skips_failures``. ``apart``: the loop goes over
    lists of items, with one of keys after them if none of these is the key, and takes what is the
    same for all records next.
    """
    if body.yields:
        return None
    if apart is not None:
        return _apart_reduce(call, apart, _REDUCE, Folding(makers, by_value), given)
    maker = _LoopMaker(call, body, ("BEFORE", "RECORD"))
    lists = {"RECORD": "records"}
    if part is None and not skips_failures:
        lists["key"] = "keys"
    keys = ["    _hg_key = _hg_key_of(_hg_RECORD)"] if skips_failures else _key_lines(part)
    text = "\n".join([*keys, _REDUCE])
    text = _skipping_loop(lists, text) if skips_failures else f"{_head(lists)}\n{text}"
    taken = (*lists.values(), "values", "begin", "find", "sent")
    key = by_value if call is None else None
    return maker.make(_SEND + text, Folding(makers, by_value), given | _constant(part), taken, key)


def reduce_scalars_loop(
    call: object, apart: ApartLoop, makers: RecordMakers, given: dict[str, object]
) -> Loop | None:
    """Like ``reduce_loop``, for records and results of scalars alone.

    None: results might be something else.
    """
    body = apart.body
    if apart.form.shape is not TUPLES:
        return None
    tuples = [body.parameters[-2], *(body.parameters[-1:] if apart.makes_records else ())]
    items = map(item_name, range(len(apart.form.has_list)))
    if body.yields or not makes_scalar_tuples(body, tuples, list(items)):
        return None
    return _apart_reduce(call, apart, _REDUCE_SCALARS, ScalarFolding(makers), given)


def _apart_reduce(
    call: object, apart: ApartLoop, template: str, emission: Sending, given: dict[str, object]
) -> Loop | None:
    lists = _item_lists(apart)
    reduce = template.replace("_hg_RECORD", apart.whole)
    taken = (*lists.values(), *names_of(apart.same), "values", "begin", "find", "sent")
    maker = _LoopMaker(call, apart.body, ("BEFORE", "RECORD"))
    text = "\n".join([_head(lists), *_item_lines(apart), reduce])
    return maker.make(_SEND + text, emission, given | apart.given, taken)


def emitting_loop(
    call: object,
    body: InlineBody,
    makers: RecordMakers,
    given: dict[str, object],
    *,
    way: "LoopWay",
    states: StateCalls | None = None,
    part: RecordPart | None = None,
    apart: ApartLoop | None = None,
    following: Following = NOTHING_FOLLOWS,
) -> Loop | None:
    """``loop(records[, keys][, times], sent[, list of each place …][, entries of each state …])``.

    It sends what is emitted, and returns how many records each filter of ``following`` has refused.
    ``sent`` is the list that it is added to, unless ``following`` has lists for fields.
    ``given`` are ``look`` and ``look_items``: each is called with ``send`` and a value, sends the
    value that is to be sent in its place, and returns the kinds that need no further look; and
    ``CONTEXT``, ``cursor``, ``piece``, ``send_on``, ``stamp`` and ``failed``; ``look_parts`` and
    ``send_tagged`` for what follows. ``part``, ``apart``: as for ``reduce_loop``; ``given`` has
    ``see`` then, too, which freezes keys. Those of a list are frozen already.
    """
    roles = ("RECORD", "CONTEXT") if way.has_context else ("RECORD",)
    lists = {"RECORD": "records"} | ({"key": "keys"} if way.keyed and part is None else {})
    lines, same = _key_lines(part), []
    if apart is not None:
        body, lists, same = apart.body, _item_lists(apart), names_of(apart.same)
        lines = _item_lines(apart)
    if way.keyed and "key" not in lists:
        lines.append(_LOOK_AT_KEY)
    lists |= {"time": "times"} if way.timed else {}
    lines += ["    _hg_cursor.key = _hg_key"] if way.keyed else []
    lines += ["    _hg_CONTEXT.time_ms = _hg_time"] if way.timed and way.has_context else []
    name = body.parameters[-len(roles)]
    is_given_away = way.owns_records and apart is None
    record = LoopRecord(name, HOLDERS[len(lists) > 1] if is_given_away else None)
    if name in stored_names(body.statements):
        record = LoopRecord(name, None)
        if way.gives is Gives.VERDICT:  # the record itself is still to be sent
            record = LoopRecord("_hg_given", None)
            lines.insert(0, "    _hg_given = _hg_RECORD")
    text = "\n".join([*lines, "    _hg_BODY"])
    text = _skipping_loop(lists, text) if way.skips_failures else f"{_head(lists)}\n{text}"
    maker = _LoopMaker(call, body, roles, states)
    text = f"{_SEND}_hg_key_kind = None\n{text}"
    given = given | _constant(part) | {"takes_none": way.takes_none}
    following, used = _placed(following, body)
    emission = _emission_of(way, makers, stored_names(body.statements), record, following)
    listed = [list_name(place).removeprefix(PREFIX) for place in following.lists or ()]
    taken = (*lists.values(), *same, "sent", *listed)
    key = way if call is None and following == NOTHING_FOLLOWS else None
    return maker.make(text, emission, given | used, taken, key)


def _placed(following: Following, body: InlineBody) -> tuple[Following, dict[str, object]]:
    """The steps as they follow this body, and what the loop has to be given for them."""
    function, given = body.function, dict[str, object]()
    code = function.__code__
    taken = {*body.parameters, *stored_names(body.statements), *code.co_freevars}
    steps = []
    for number, step in enumerate(following.steps):
        found, more = placed(step, number, function.__globals__, taken)
        given |= {**more, f"again{number}": step.again}
        steps.append(found)
    return replace(following, steps=tuple(steps)), given


def _emission_of(
    way: "LoopWay",
    makers: RecordMakers,
    variables: set[str],
    record: LoopRecord,
    following: Following,
) -> Sending:
    match way.gives:
        case Gives.VALUES:
            return Yielding(makers, way.by_value, way.timed, way.skips_failures, following)
        case Gives.VALUE:
            return Returning(makers, way.by_value, way.timed, variables, record, following)
        case Gives.VALUE_OR_NOTHING:
            return Answering(makers, way.by_value, way.timed, following)
        case Gives.VERDICT:
            return Judging(makers, way.by_value, way.timed, record, following)


def leaving_places(
    body: InlineBody, makers: RecordMakers, way: "LoopWay", steps: Sequence[Step]
) -> tuple[FieldShape, list[Same | None]] | None:
    """The shape of all records that leave such a loop, and what is the same in all of them.

    None in place of what has to have a list. None in all: they are not made in one shape where they
    are emitted.
    """
    following, _ = _placed(Following(tuple(steps)), body)
    maps = [step for step in following.steps if not step.is_filter]
    emitted = _emitted(body, way)
    made: list[MadeRecord | None] = []
    if maps:
        made = [maps[-1].makers.made(maps[-1].expression)]
    elif way.gives is not Gives.VERDICT:
        made = [makers.made(value) for value in emitted or ()]
    places = common_places(made)
    if emitted is None or places is None or made[0] is None:
        return None
    return made[0].shape, [None if place is None else Same(place.value) for place in places]


def _emitted(body: InlineBody, way: "LoopWay") -> list[ast.expr | None] | None:
    """The expressions whose values a body emits; None: others leave it, too."""
    parts = [part for statement in body.statements for part in ast.walk(statement)]
    if way.gives is not Gives.VALUES:
        found = [part.value for part in parts if isinstance(part, ast.Return)]
        return found if not body.yields and always_leaves(body.statements) else None
    if any(isinstance(part, ast.YieldFrom) for part in parts):
        return None
    return [part.value for part in parts if isinstance(part, ast.Yield)]


def emitting_places(body: InlineBody) -> int:
    """In how many places a body emits."""
    parts = [part for statement in body.statements for part in ast.walk(statement)]
    kinds = (ast.Yield, ast.YieldFrom) if body.yields else (ast.Return,)
    return sum(isinstance(part, kinds) for part in parts)


def _count_holders() -> tuple[int | None, int | None]:
    """References to a record of a bundle beside that of a variable that is looked at.

    They are those of the bundle's list and of the loop's variable; in a loop over several lists
    ``zip`` keeps what it gave last, too. None: counts say nothing useful.
    """
    if SOLE_HOLDER < 0:
        return None, None
    counts: list[int] = []
    for record in [[0]]:
        value = record
        counts.append(sys.getrefcount(value) - SOLE_HOLDER)
    for record, _ in zip([[1]], [0]):  # noqa: B905 - as the loops do
        value = record
        counts.append(sys.getrefcount(value) - SOLE_HOLDER)
    return counts[0], counts[1]


HOLDERS: Final = _count_holders()
"""In a loop over one list, and over several."""


class Gives(Enum):
    """What a function gives for each record."""

    VALUES = "values"
    """What it yields, or what an iterable that it returns has."""
    VALUE = "value"
    """What it returns, None like any other value."""
    VALUE_OR_NOTHING = "value or nothing"
    """What it returns; None is nothing."""
    VERDICT = "verdict"
    """Whether the record is sent on."""


@dataclass(frozen=True, slots=True)
class LoopWay:
    """How a loop goes over records, and what it does with what the function gives."""

    by_value: bool
    keyed: bool
    timed: bool
    has_context: bool = True
    """The function takes a context after the record."""
    gives: Gives = Gives.VALUES
    takes_none: bool = True
    """The function may return None in place of values."""
    skips_failures: bool = False
    """``failed(error, source, length)`` is told of an error, and the loop goes on."""
    owns_records: bool = True
    """Nobody else has the list of records."""


def can_emit(body: InlineBody, way: LoopWay) -> bool:
    """Whether a loop may have the body in it; otherwise it calls the function."""
    if way.gives is not Gives.VALUES:
        if body.yields:
            return False  # a generator: nobody asks for its values, but making it may do something
    elif _returns_a_value(body.statements) or not (way.takes_none or body.yields):
        return False  # a list; or the call has to fail
    # A context is set once for all records.
    return not way.has_context or body.parameters[-1] not in stored_names(body.statements)


_CALLED: Final = """
_hg_found = _hg_call(_hg_record)
if _hg_type(_hg_found) is not _hg_generator:
    if _hg_found is None and _hg_takes_none:
        return
    if _hg_type(_hg_found) is _hg_list and _hg_references(_hg_found) == _hg_sole_holder:
        _hg_found = _hg_taken_from(_hg_found)
    else:
        _hg_found = _hg_iterator(_hg_found)
for _hg_value in _hg_found:
    yield _hg_value
    break
else:
    return
for _hg_value in _hg_found:
    yield _hg_value
"""

_CALLED_FOR_ONE: Final = "return _hg_call(_hg_record)"


def called_body(gives: Gives, parameters: Sequence[str] = ("_hg_record",)) -> InlineBody:
    """A body that calls the function, for those that have to be called.

    ``given`` of a loop has ``call``, and ``iterator`` for what is returned if it gives values.
    Most calls give one value: that takes no look at the length of the list.
    """
    text = _CALLED if gives is Gives.VALUES else _CALLED_FOR_ONE
    statements = statements_of(text.replace("(_hg_record)", f"({', '.join(parameters)})"))
    line = called_body.__code__.co_firstlineno
    for statement in statements:
        for node in ast.walk(statement):
            if "lineno" in node._attributes:
                node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
                node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    # This function lends loops with calls its file, its globals and its name.
    yields = gives is Gives.VALUES
    return InlineBody(
        cast("FunctionType", called_body), tuple(parameters), tuple(statements), yields
    )


def _head(lists: Mapping[str, str]) -> str:
    """The head of a loop over the records and other lists, given by what an item is called."""
    items, source = _entries(lists)
    return f"{_FROM}\nfor {items} in {source}:"


def _entries(lists: Mapping[str, str]) -> tuple[str, str]:
    """The variables of a loop over lists, and what it goes over."""
    items, others = ", ".join(map(_own, lists)), map(_own, [*lists.values()][1:])
    sources = ", ".join([SOURCE, *others])
    return items, f"_hg_zip({sources})" if len(lists) > 1 else sources


def _skipping_loop(lists: Mapping[str, str], body: str) -> str:
    """A loop that goes on with the next record when one has failed."""
    items, source = _entries(lists)
    return (
        f"{_FROM}\n_hg_entries = {source}\n_hg_before = 0\n"
        f"while True:\n    try:\n        for {items} in _hg_entries:\n"
        f"            _hg_before = _hg_len(_hg_sent)\n{indent(body, ' ' * 8)}\n        break\n"
        f"    except _hg_exception as _hg_error:\n"
        f"        _hg_failed(_hg_error, {SOURCE}, _hg_before)"
    )


def _key_lines(part: RecordPart | None) -> list[str]:
    if part is None:
        return []
    taken = f".{part.name}" if part.is_attribute else "[_hg_part]"
    return [_TAKE_KEY.replace("_hg_KEY", f"_hg_RECORD{taken}")]


def _item_lists(apart: ApartLoop) -> dict[str, str]:
    """The lists of a loop over records that are taken apart."""
    first, *rest = names_of(apart.lists)
    keys = {"key": "keys"} if apart.key is None else {}
    return {first: "records", **{name: f"{name}s" for name in rest}, **keys}


def _item_lines(apart: ApartLoop) -> list[str]:
    lines = [f"    _hg_RECORD = {apart.whole}"] if apart.makes_records else []
    return lines if apart.key is None else [*lines, f"    _hg_key = {item_name(apart.key)}"]


def _constant(part: RecordPart | None) -> dict[str, object]:
    return {} if part is None or part.is_attribute else {"part": part.name}


class _LoopMaker:
    """Puts the body of one function into templates."""

    def __init__(
        self,
        call: object,
        body: InlineBody,
        roles: Sequence[str],
        states: StateCalls | None = None,
    ) -> None:
        """``roles``: what templates call the parameters after ``self``."""
        self._body = body
        self._roles = dict(zip(roles, body.parameters[-len(roles) :], strict=True))
        self._bound = {}
        if isinstance(call, MethodType):
            self._bound[body.parameters[0]] = call.__self__
        self._states = states

    def make(
        self,
        template: str,
        emission: Sending,
        given: dict[str, object],
        taken: Sequence[str],
        key: object = None,
    ) -> Loop | None:
        """``key``: what the emission is made of; loops that only call are compiled once for it."""
        if self._states is not None:
            taken = (*taken, *self._states.arguments)
            given = given | self._states.given
        values = {_own(name): value for name, value in {**_BUILTINS, **given}.items()}
        for role in self._roles.keys() & given.keys():  # a parameter that is the same for all
            values[self._roles[role]] = values.pop(_own(role))
        values |= self._bound
        if key is None:
            return self._bound_loop(self._code(template, emission, taken, values), values)
        known = template, key, self._body.parameters, tuple(taken)
        code = _CALLING.get(known)  # other threads may empty it at any time
        if code is None:
            code = self._code(template, emission, taken, values)
            assert code is not None, "a loop that calls is ours"
            if len(_CALLING) >= MOST_CALLING:
                _CALLING.clear()
            _CALLING[known] = code
        return self._bound_loop(code, values)

    def _code(
        self, template: str, emission: Sending, taken: Sequence[str], values: Iterable[str]
    ) -> CodeType | None:
        """The code of the loop; it takes those of ``values`` that it uses by their names."""
        statements = self._inlined(self._body.statements, emission, looped=False)
        if not always_leaves(self._body.statements):
            statements += emission.ended()
        local = stored_names(self._body.statements) - set(self._body.parameters)
        if local := {name for name in local if not name.startswith(PREFIX)}:
            # What the record before has left is released, as when a call ends.
            statements = statements_of(" = ".join([*sorted(local), "None"])) + statements
        loop = Placing(self._roles, statements).place(template)
        begin = [f"{kind} = None" for kind in emission.kinds]
        refused = emission.following.refused
        if refused:
            begin.append(f"{' = '.join(refused)} = 0")
            loop += statements_of(f"return ({', '.join(refused)},)")
        begin += [] if self._states is None else self._states.begin
        statements = [*statements_of("\n".join(begin)), *loop]
        used = names_in(statements)
        bound = [name for name in values if name in used]
        parameters = [*map(_own, taken), *(["*"] if bound else []), *bound]
        node = function_node(_own("loop"), ", ".join(parameters), statements)
        ast.copy_location(node, self._body.statements[0])
        code = self._body.function.__code__
        compiled = compile_within(node, code.co_freevars, code.co_filename, code.co_flags)
        return None if compiled is None else _renamed(compiled, code)

    def _bound_loop(self, code: CodeType | None, values: Mapping[str, object]) -> Loop | None:
        if code is None:
            return None
        function = self._body.function
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        loop = FunctionType(code, function.__globals__, code.co_name, None, closure)
        bound = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        loop.__kwdefaults__ = {name: values[name] for name in bound}
        return loop

    def _inlined(
        self, statements: Sequence[ast.stmt], emission: Sending, looped: bool
    ) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            made = [deepcopy(statement)]
            if self._states is not None:
                made = self._states.replaced(made[0])
            for part in made:
                for new in self._emitting(part, emission, looped):
                    if not hasattr(new, "lineno"):  # it stands in the user's line
                        ast.copy_location(new, statement)
                    found.append(new)
        return found

    def _emitting(self, statement: ast.stmt, emission: Sending, looped: bool) -> list[ast.stmt]:
        match statement:
            case ast.Return(value=value):
                return emission.returned(value)
            case ast.Expr(value=ast.Yield(value=value)):
                return emission.yielded(value, looped)
            case ast.Expr(value=ast.YieldFrom(value=source)):
                each = emission.yielded(ast.Name("_hg_each", ast.Load()), looped=True)
                target = ast.Name("_hg_each", ast.Store())
                return [ast.For(target=target, iter=source, body=each, orelse=[])]
            case ast.If():
                statement.body = self._inlined(statement.body, emission, looped)
                statement.orelse = self._inlined(statement.orelse, emission, looped)
            case ast.For() | ast.While():
                looped = looped or not _runs_once(statement)
                statement.body = self._inlined(statement.body, emission, looped)
                statement.orelse = self._inlined(statement.orelse, emission, True)
            case _:
                pass
        return [statement]


MOST_CALLING: Final = 256
_CALLING: Final[dict[object, CodeType]] = {}
"""Loops that only call functions, whatever these are: to compile one takes milliseconds."""


def _own(name: str) -> str:
    return f"{PREFIX}{name}"


def _runs_once(loop: ast.For | ast.While) -> bool:
    """Whether the body ends with ``break``, and nothing goes on before."""
    parts = [part for statement in loop.body for part in ast.walk(statement)]
    is_left = isinstance(loop.body[-1], ast.Break)
    return is_left and not any(isinstance(part, ast.Continue) for part in parts)


def _returns_a_value(statements: Iterable[ast.stmt]) -> bool:
    return any(
        isinstance(part, ast.Return) and part.value is not None
        for statement in statements
        for part in ast.walk(statement)
    )


def _renamed(loop: CodeType, code: CodeType) -> CodeType:
    """The loop under the name of the function, so that tracebacks have one frame of that name."""
    names = ("co_name", "co_qualname")  # the second one since Python 3.11
    changed: dict[str, Record] = {
        name: getattr(code, name) for name in names if hasattr(code, name)
    }
    return loop.replace(**changed)
