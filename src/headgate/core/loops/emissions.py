"""What stands in a loop in the place of ``return`` and ``yield``, as statements.

Emission is by value: a value is looked at before the next statement runs. Law: a value is sent
without a call only if its kind, or the kinds of both parts of a pair, or of everything in the
record that is made here, are those that a look has found immutable at the same place before.
"""

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headgate.base.fields import TUPLES
from headgate.core.loops.definitions import parse
from headgate.core.loops.made_records import MadeRecord, RecordMakers
from headgate.core.loops.steps import Step


def statements_of(text: str, **parts: ast.expr) -> list[ast.stmt]:
    """Statements of the loop's own, with expressions for the names ``_hg_PART`` in them.

    They have no line: they get that of the user's statement that they stand for.
    """
    statements = parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            for attribute in ("lineno", "end_lineno", "col_offset", "end_col_offset"):
                if hasattr(node, attribute):
                    delattr(node, attribute)
    filling = _Filling({f"_hg_{name}": part for name, part in parts.items()})
    return [filling.visit(statement) for statement in statements]


@dataclass(frozen=True, slots=True)
class Following:
    """What becomes of a value before it leaves the loop, and how it leaves."""

    steps: tuple[Step, ...] = ()
    lists: tuple[int, ...] | None = None
    """The places that have lists, if only records of one shape leave, and do so apart."""
    may_be_tagged: bool = False
    """The function may send (tag, value), which goes past the steps, to a side output."""

    @property
    def refused(self) -> list[str]:
        """The variables that count what each filter has refused."""
        return [_refused(number) for number, step in enumerate(self.steps) if step.is_filter]


NOTHING_FOLLOWS: Final = Following()

Flow: TypeAlias = "str | tuple[MadeRecord, dict[int, str]]"
"""A value on its way: the variable that holds it, or a record that need not be made yet, and the
variables of its fields by place."""


class Sending:
    """What a function returns is sent; ``return`` goes on to the next record."""

    def __init__(
        self,
        makers: RecordMakers,
        by_value: bool = True,
        timed: bool = False,
        following: Following = NOTHING_FOLLOWS,
    ) -> None:
        """``timed``: what is sent gets the time of its record."""
        self.kinds: list[str] = []
        """Variables with what was immutable, None at first."""
        self.following = following
        self._makers = makers
        self._by_value = by_value
        self._timed = timed

    def returned(self, value: ast.expr | None) -> list[ast.stmt]:
        """In the place of a ``return``."""
        return [*self._stamped(value or ast.Constant(None)), ast.Continue()]

    def yielded(self, value: ast.expr | None, looped: bool) -> list[ast.stmt]:
        """In the place of a ``yield``; ``looped``: in a loop of the user's."""
        raise AssertionError("functions that yield have a loop of their own")

    def ended(self) -> list[ast.stmt]:
        """At the end of a body that may be reached."""
        return self.returned(None)

    def _stamped(self, value: ast.expr) -> list[ast.stmt]:
        """A value goes through the steps, and leaves with its time."""
        made = self._makers.made(value)
        may_be_tagged = self.following.may_be_tagged and _may_be_tagged(made)
        if not self.following.steps and not (self.following.lists is not None and may_be_tagged):
            return [*self._sent(value), *self._stamp]
        flow, statements = self._held(value) if made is None else _bound(made, "_hg_made")
        rest = self._followed(flow, 0)
        if may_be_tagged:
            time = "_hg_time" if self._timed else "None"
            sent = statements_of(f"_hg_send_tagged(_hg_VALUE, {time})", VALUE=_whole(flow))
            rest = [ast.If(_is_tagged(flow), sent, rest)]
        return [*statements, *rest]

    @property
    def _stamp(self) -> list[ast.stmt]:
        return statements_of("_hg_stamp(_hg_time)") if self._timed else []

    def _held(self, value: ast.expr) -> tuple[Flow, list[ast.stmt]]:
        """A value in a variable of the loop's own."""
        if isinstance(value, ast.Name) and value.id == "_hg_value":  # what a call gave
            return value.id, []
        return "_hg_value", statements_of("_hg_value = _hg_VALUE", VALUE=value)

    def _followed(self, flow: Flow, number: int) -> list[ast.stmt]:
        """What becomes of a value from the step with this number on."""
        steps = self.following.steps
        if number == len(steps):
            return [*self._left(flow), *self._stamp]
        step, statements = steps[number], []
        read = None if isinstance(flow, str) else step.reads(*flow)
        if read is None:
            variable = flow if isinstance(flow, str) else f"_hg_record{number}"
            if not isinstance(flow, str):
                statements = statements_of(f"{variable} = _hg_VALUE", VALUE=_whole(flow))
                if self.following.lists is None:  # it will leave as it is
                    flow = variable
            read = step.over(variable)
        failed = statements_of(f"_hg_again{number}(_hg_VALUE)\nraise", VALUE=_whole(flow))
        rest: list[ast.stmt]
        if step.is_filter:
            tried = statements_of("_hg_refuses = not _hg_VALUE", VALUE=read)
            count = statements_of(f"{_refused(number)} += 1")
            passed = self._followed(flow, number + 1)
            rest = [ast.If(ast.Name("_hg_refuses", ast.Load()), count, passed)]
        else:
            made = step.makers.made(read)
            if made is None:
                flow = f"_hg_value{number}"
                tried = statements_of(f"{flow} = _hg_VALUE", VALUE=read)
            else:
                flow, tried = _bound(made, f"_hg_made{number}")
            rest = self._followed(flow, number + 1)
        handler = ast.ExceptHandler(ast.Name("_hg_failures", ast.Load()), None, failed)
        return [*statements, ast.Try(tried, [handler], [], []), *rest]

    def _left(self, flow: Flow) -> list[ast.stmt]:
        """A value that has passed the last step is sent."""
        if not isinstance(flow, str):
            made, names = flow
            items = {
                place: item if isinstance(item, ast.Constant) else _name(names[place])
                for place, item in made.items.items()
            }
            made = replace(made, items=items)
            if self._by_value or self.following.lists is not None:
                return self._made_sent(made)
            return statements_of("_hg_send(_hg_VALUE)", VALUE=_whole(flow))
        assert self.following.lists is None, "what leaves apart was never made"
        if not self._by_value:
            return statements_of(f"_hg_send({flow})")
        moved = [] if flow == "_hg_value" else statements_of(f"_hg_value = {flow}; {flow} = None")
        return [*moved, *self._looked_at(self._holders if flow == "_hg_value" else "")]

    @property
    def _holders(self) -> str:
        """What is added to the count of references to a value of the function's own."""
        return ""

    def _sent(self, value: ast.expr) -> list[ast.stmt]:
        made = self._makers.made(value)
        if made is not None and (self._by_value or self.following.lists is not None):
            return self._made_sent(made)
        if not self._by_value:
            return statements_of("_hg_send(_hg_VALUE)", VALUE=value)
        if isinstance(value, ast.Name) and value.id == "_hg_value":  # what a call gave
            return self._looked_at()
        return [*statements_of("_hg_value = _hg_VALUE", VALUE=value), *self._looked_at()]

    def _looked_at(self, holders: str = "") -> list[ast.stmt]:
        """Send ``_hg_value``, or what is to be sent in its place."""
        kind, first, second, mutable, look = [self._new_kind() for _ in range(5)]
        references = f"_hg_references(_hg_value){holders}"
        return statements_of(
            f"if _hg_type(_hg_value) is {kind}:\n"
            f"    _hg_send(_hg_value)\n"
            f"elif _hg_type(_hg_value) is _hg_tuple and (\n"
            f"    _hg_type(_hg_value[0]) is {first} and _hg_type(_hg_value[1]) is {second}\n"
            f"    if _hg_len(_hg_value) == 2 else _hg_are_atoms(_hg_map(_hg_type, _hg_value))\n"
            f"):\n"
            f"    _hg_send(_hg_value)\n"
            f"elif _hg_type(_hg_value) is {mutable}:\n"
            f"    if {references} == _hg_sole_holder and {look}(_hg_value):\n"
            f"        _hg_send(_hg_value)\n"
            f"    else:\n"
            f"        _hg_send(_hg_own(_hg_value))\n"
            f"else:\n"
            f"    {kind}, {first}, {second}, {mutable}, {look} = "
            f"_hg_look(_hg_send, {references}, _hg_value)"
        )

    def _made_sent(self, made: MadeRecord) -> list[ast.stmt]:
        """A record that is made here: only what it holds can be changed."""
        if self.following.lists is not None:
            return self._parted(made, self.following.lists)
        names = {place: f"_hg_item{place}" for place in made.items}
        statements: list[ast.stmt] = []
        kinds: dict[str, str] = {}
        for place, item in made.items.items():
            statements += statements_of(f"{names[place]} = _hg_VALUE", VALUE=item)
            if not _is_immutable(item):
                kinds[names[place]] = self._new_kind()
        statements += self._making(made, names)
        if not kinds:
            return [*statements, *statements_of("_hg_send(_hg_value)")]
        test = " and ".join(f"_hg_type({name}) is {kind}" for name, kind in kinds.items())
        return [
            *statements,
            *statements_of(
                f"if {test}:\n"
                f"    _hg_send(_hg_value)\n"
                f"else:\n"
                f"    ({', '.join(kinds.values())},) = "
                f"_hg_look_items(_hg_send, _hg_value, ({', '.join(kinds)},))"
            ),
        ]

    def _making(self, made: MadeRecord, names: Mapping[int, str]) -> list[ast.stmt]:
        """Make ``_hg_value`` of these variables, by place."""
        return statements_of("_hg_value = _hg_VALUE", VALUE=made.made_of(names))

    def _parted(self, made: MadeRecord, lists: Collection[int]) -> list[ast.stmt]:
        """The fields of a record that need not be made go to lists of their own."""
        names = {place: f"_hg_item{place}" for place in made.items if place in lists}
        statements: list[ast.stmt] = []
        for place, name in names.items():
            statements += statements_of(f"{name} = _hg_VALUE", VALUE=made.items[place])
        added = [f"{list_name(place)}.append({name})" for place, name in names.items()]
        if not self._by_value:
            return [*statements, *statements_of("\n".join(added))]
        kinds = {name: self._new_kind() for name in names.values()}
        tests = [f"_hg_type({name}) is {kind}" for name, kind in kinds.items()]
        places, items = ", ".join(map(list_name, names)), ", ".join(kinds)
        text = (
            f"if {' and '.join(tests)}:\n    {'; '.join(added)}\nelse:\n"
            f"    ({', '.join(kinds.values())},) = _hg_look_parts(({places},), ({items},))"
        )
        return [*statements, *statements_of(text)]

    def _new_kind(self) -> str:
        self.kinds.append(f"_hg_kind{len(self.kinds)}")
        return self.kinds[-1]


class Returning(Sending):
    """One result for each record, None like any other. What is released first is not counted."""

    def __init__(
        self,
        makers: RecordMakers,
        by_value: bool,
        timed: bool,
        variables: Collection[str],
        record: "LoopRecord",
        following: Following = NOTHING_FOLLOWS,
    ) -> None:
        """``variables``: of the body; what they hold is released when it returns."""
        super().__init__(makers, by_value, timed, following)
        self._variables = variables
        self._record = record

    def _held(self, value: ast.expr) -> tuple[Flow, list[ast.stmt]]:
        flow, statements = super()._held(value)
        if isinstance(value, ast.Name) and value.id in self._variables:
            statements += statements_of(f"{value.id} = None")
        return flow, statements

    @property
    def _holders(self) -> str:
        return self._record.if_same

    def _sent(self, value: ast.expr) -> list[ast.stmt]:
        if not self._by_value or self._makers.made(value) is not None:
            return super()._sent(value)
        _, statements = self._held(value)
        return [*statements, *self._looked_at(self._holders)]


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """The variable that holds the record in a loop, and who else of the loop does."""

    name: str
    holders: int | None
    """References to it beside one in a variable that is looked at; None: they are not known."""

    @property
    def if_same(self) -> str:
        """To be added to a count of references to a value that may be the record."""
        held = self.holders
        return "" if held is None else f" - (_hg_value is {self.name} and {held})"

    @property
    def if_record(self) -> str:
        """To be added to a count of references to the record."""
        return "" if self.holders is None else f" - {self.holders}"


class Judging(Sending):
    """A record is sent if the function says yes."""

    def __init__(
        self,
        makers: RecordMakers,
        by_value: bool,
        timed: bool,
        record: "LoopRecord",
        following: Following = NOTHING_FOLLOWS,
    ) -> None:
        super().__init__(makers, by_value, timed, following)
        self._record = record

    def returned(self, value: ast.expr | None) -> list[ast.stmt]:
        if value is None:
            return [ast.Continue()]
        verdict = statements_of("if not _hg_VALUE:\n    continue", VALUE=value)
        return [*verdict, *self._stamped(ast.Name(self._record.name, ast.Load())), ast.Continue()]

    def ended(self) -> list[ast.stmt]:
        return []

    def _held(self, value: ast.expr) -> tuple[Flow, list[ast.stmt]]:
        return self._record.name, []

    def _left(self, flow: Flow) -> list[ast.stmt]:
        return self._sent(_name(flow)) if flow == self._record.name else super()._left(flow)

    def _sent(self, value: ast.expr) -> list[ast.stmt]:
        if not self._by_value:
            return super()._sent(value)
        statements = statements_of("_hg_value = _hg_VALUE", VALUE=value)
        return [*statements, *self._looked_at(self._record.if_record)]


class Folding(Sending):
    """Results are kept for their key before they are sent."""

    def _sent(self, value: ast.expr) -> list[ast.stmt]:
        if self._by_value and self._makers.made(value) is not None:
            return super()._sent(value)
        kept = statements_of(
            "_hg_result = _hg_VALUE\n"
            "_hg_values[_hg_key] = _hg_none if _hg_result is None else _hg_result",
            VALUE=value,
        )
        return [*kept, *super()._sent(ast.Name("_hg_result", ast.Load()))]

    def _making(self, made: MadeRecord, names: Mapping[int, str]) -> list[ast.stmt]:
        """A tuple is kept and sent; of what can be changed one is kept, and another one is sent."""
        if made.shape.kind is tuple:
            keeping = "_hg_values[_hg_key] = _hg_value = _hg_VALUE"
            return statements_of(keeping, VALUE=made.made_of(names))
        kept = statements_of("_hg_values[_hg_key] = _hg_VALUE", VALUE=made.made_of(names))
        return [*kept, *super()._making(made, names)]


def list_name(place: int) -> str:
    """The list for the items of a place."""
    return f"_hg_list{place}"


def common_places(records: Iterable[MadeRecord | None]) -> list[ast.Constant | None] | None:
    """What all records have in their places, None where they have items of their own.

    None in all: they have no common shape, or no items of their own.
    """
    found = list(records)
    made = [record for record in found if record is not None]
    if not made or len(made) != len(found):
        return None
    first = made[0]
    if any(
        record.shape != first.shape or record.items.keys() != first.items.keys() for record in made
    ):
        return None
    places = [
        item if len(made) == 1 and isinstance(item, ast.Constant) else None
        for _, item in sorted(first.items.items(), key=lambda entry: entry[0])
    ]
    return places if None in places else None


class ScalarFolding(Sending):
    """For results that are tuples of scalars for sure: nothing has to be looked at."""

    def returned(self, value: ast.expr | None) -> list[ast.stmt]:
        assert value is not None, "None is no tuple"
        made = "_hg_values[_hg_key] = _hg_value = _hg_VALUE\n_hg_send(_hg_value)"
        return [*statements_of(made, VALUE=value), ast.Continue()]


class Yielding(Sending):
    """What is yielded is sent, with its record's time; ``return`` goes on to the next record."""

    def __init__(
        self,
        makers: RecordMakers,
        by_value: bool,
        timed: bool,
        takes_back: bool = False,
        following: Following = NOTHING_FOLLOWS,
    ) -> None:
        """``takes_back``: what was sent for a record that fails is taken back."""
        super().__init__(makers, by_value, timed, following)
        self._takes_back = takes_back

    def returned(self, value: ast.expr | None) -> list[ast.stmt]:
        return [ast.Continue()]

    def yielded(self, value: ast.expr | None, looped: bool) -> list[ast.stmt]:
        statements = self._stamped(value or ast.Constant(None))
        if looped:  # a function may yield more than memory holds
            lists = self.following.lists
            collected = "_hg_sent" if lists is None else list_name(lists[0])
            send_on = f"if _hg_len({collected}) >= _hg_piece:\n    _hg_send_on()"
            if self._takes_back:
                send_on += "\n    _hg_before = 0"
            statements += statements_of(send_on)
        return statements

    def ended(self) -> list[ast.stmt]:
        return []


class Answering(Sending):
    """What is returned is sent, unless it is None."""

    def returned(self, value: ast.expr | None) -> list[ast.stmt]:
        if value is None:
            return [ast.Continue()]
        statements = statements_of(
            "_hg_value = _hg_VALUE\nif _hg_value is None:\n    continue", VALUE=value
        )
        return [*statements, *self._stamped(ast.Name("_hg_value", ast.Load())), ast.Continue()]

    def ended(self) -> list[ast.stmt]:
        return []


class Placing(ast.NodeTransformer):
    """Fills the template of a loop: parameters for roles, statements for the body."""

    def __init__(
        self,
        roles: Mapping[str, str],
        statements: list[ast.stmt],
    ) -> None:
        """``roles``: the parameters of the function, by what the template calls them."""
        self._names = {f"_hg_{role}": name for role, name in roles.items()}
        self._statements = statements

    def place(self, template: str) -> list[ast.stmt]:
        """The statements of the loop."""
        return [self.visit(statement) for statement in statements_of(template)]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        if isinstance(node.value, ast.Name) and node.value.id == "_hg_BODY":
            return self._statements
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _refused(number: int) -> str:
    return f"_hg_refused{number}"


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _bound(made: MadeRecord, prefix: str) -> tuple[Flow, list[ast.stmt]]:
    """The items of a record in variables, which are assigned in the order of the expression."""
    names = {place: f"{prefix}_{place}" for place in made.items}
    statements: list[ast.stmt] = []
    for place, item in made.items.items():
        statements += statements_of(f"{names[place]} = _hg_VALUE", VALUE=item)
    return (made, names), statements


def _whole(flow: Flow) -> ast.expr:
    """The record itself, made if need be."""
    return _name(flow) if isinstance(flow, str) else flow[0].made_of(flow[1])


def _may_be_tagged(made: MadeRecord | None) -> bool:
    """Whether a value may be a pair of a tag and a value."""
    if made is None:
        return True
    return made.shape is TUPLES and len(made.items) == 2 and not _is_immutable(made.items[0])


def _is_tagged(flow: Flow) -> ast.expr:
    if not isinstance(flow, str):
        return _expression(f"_hg_isinstance({flow[1][0]}, _hg_tag)")
    return _expression(
        f"_hg_type({flow}) is _hg_tag or _hg_type({flow}) is _hg_tuple "
        f"and _hg_len({flow}) == 2 and _hg_isinstance({flow}[0], _hg_tag)"
    )


def _expression(text: str) -> ast.expr:
    (statement,) = statements_of(text)
    assert isinstance(statement, ast.Expr)
    return statement.value


def _is_immutable(item: ast.expr) -> bool:
    """A text of several parts is a new one; that of one part is whatever ``__format__`` returns."""
    return isinstance(item, ast.Constant) or (
        isinstance(item, ast.JoinedStr) and len(item.values) > 1
    )


class _Filling(ast.NodeTransformer):
    def __init__(self, parts: Mapping[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._parts.get(node.id, node)
