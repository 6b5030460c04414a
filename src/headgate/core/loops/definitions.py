"""The source of a user's function, and the proof that it is the source of that very function.

The driver reads definitions from files, which may have changed since they were loaded, and a line
may hold several lambdas. Law: a definition is used only if it compiles to the code of the function
at hand, instruction by instruction and constant by constant.
"""

import __future__

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import CodeType, FunctionType, MethodType
from typing import Final, TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.Lambda

LONGEST: Final = 20_000
"""Characters of a definition that travels; nobody inlines a longer one."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The lines of a ``def``, or a lambda after as many blanks as stand before it."""

    text: str
    line: int
    """The first line of the text in its file, counted from 1."""
    is_lambda: bool
    imports: tuple[str, ...] = ()
    """Names in it that its file imports: CPython calls what it finds in those in another way."""

    def parse(self) -> FunctionNode:
        """With the lines and columns that it has in its file; raises SyntaxError."""
        if self.is_lambda:
            text, above = f"(\n{self.text}\n)", 1
        elif self.text[:1].isspace():
            text, above = f"if 1:\n{self.text}", 1
        else:
            text, above = self.text, 0
        for node in ast.walk(parse(text)):
            if isinstance(node, FunctionNode):  # the outermost comes first
                ast.increment_lineno(node, self.line - above - 1)
                return node
        raise SyntaxError(f"no function in {self.text!r}")


def parse(text: str) -> ast.Module:
    """The syntax tree of a text; raises SyntaxError.

    CPython 3.11 counts the levels of a tree in one place for all threads. If the garbage collector
    interrupts one that makes a tree, and another one makes its own meanwhile, the first fails.
    """
    for _ in range(TRIES - 1):
        with suppress(SystemError, RecursionError):
            return ast.parse(text)
    return ast.parse(text)


TRIES: Final = 20
"""So often a tree is made before an error is taken for the text's own."""


def definitions_in(lines: list[str]) -> dict[int, list[Definition]]:
    """Every function that a file defines, by the line it begins in; raises SyntaxError."""
    found: dict[int, list[Definition]] = {}
    tree = parse("".join(lines))
    imported = {name for statement in tree.body for name in _imported(statement)}
    for node in ast.walk(tree):
        if not isinstance(node, FunctionNode) or node.end_lineno is None:
            continue
        own = lines[node.lineno - 1 : node.end_lineno]
        is_lambda = isinstance(node, ast.Lambda)
        if is_lambda and own:  # columns count bytes; those of one in an f-string may be anything
            own[-1] = own[-1].encode()[: node.end_col_offset].decode(errors="replace")
            rest = own[0].encode()[node.col_offset :].decode(errors="replace")
            own[0] = " " * node.col_offset + rest
        text = "".join(own)
        if len(text) <= LONGEST:
            used = tuple(sorted(imported & _names(node))) if imported else ()
            found.setdefault(node.lineno, []).append(Definition(text, node.lineno, is_lambda, used))
    return found


def _imported(statement: ast.AST) -> Iterator[str]:
    """What the statements of a module import; functions and classes have names of their own."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif not isinstance(statement, FunctionNode | ast.AsyncFunctionDef | ast.ClassDef):
        for child in ast.iter_child_nodes(statement):
            yield from _imported(child)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def plain_function(call: object) -> FunctionType | None:
    """The Python function that a call of this object runs; None: there is none."""
    function = call.__func__ if isinstance(call, MethodType) else call
    return function if isinstance(function, FunctionType) else None


def find_node(function: FunctionType, definitions: Iterable[Definition]) -> FunctionNode | None:
    """The parsed definition that compiles to the function's code; None: none of these does."""
    code = function.__code__
    for definition in definitions:
        if definition.line != code.co_firstlineno:
            continue
        try:
            node = definition.parse()
            compiled = _compile_again(node, code, definition.imports)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if compiled is not None and is_same_code(compiled, code):
            return node
    return None


def compile_within(
    node: ast.FunctionDef, free: Iterable[str], filename: str, flags: int
) -> CodeType | None:
    """The code of a function in which the names ``free`` are those of a function around it."""
    return _compile(node, node.name, free, filename, flags)


def function_node(name: str, parameters: str, statements: list[ast.stmt]) -> ast.FunctionDef:
    """A ``def`` with these statements."""
    node = parse(f"def {name}({parameters}): pass").body[0]
    assert isinstance(node, ast.FunctionDef)
    node.body = statements
    return node


def is_same_code(first: CodeType, second: CodeType) -> bool:
    """Whether two codes do the same, wherever they stand."""
    return (
        all(getattr(first, part) == getattr(second, part) for part in _PARTS)
        and first.co_flags & ~_NESTED == second.co_flags & ~_NESTED
        and len(first.co_consts) == len(second.co_consts)
        and all(map(_is_same_constant, first.co_consts, second.co_consts))
    )


def _compile_again(node: FunctionNode, code: CodeType, imports: tuple[str, ...]) -> CodeType | None:
    statement: ast.stmt = node if isinstance(node, ast.FunctionDef) else ast.Return(node)
    free, filename = code.co_freevars, code.co_filename
    return _compile(statement, code.co_name, free, filename, code.co_flags, imports)


def _compile(
    statement: ast.stmt,
    name: str,
    free: Iterable[str],
    filename: str,
    flags: int,
    imports: Iterable[str] = (),
) -> CodeType | None:
    around = function_node("_hg_around", ", ".join(free), [statement])
    above = [ast.Import([ast.alias(name)]) for name in imports]
    module = ast.Module(body=[*above, around], type_ignores=[])
    ast.fix_missing_locations(module)
    code = compile(module, filename, "exec", flags=flags & _FEATURES, dont_inherit=True)
    outer = next(part for part in code.co_consts if isinstance(part, CodeType))
    for part in outer.co_consts:
        if isinstance(part, CodeType) and part.co_name == name:
            return part
    return None


def _is_same_constant(first: object, second: object) -> bool:
    if type(first) is not type(second):
        return False  # 1, 1.0 and True are equal
    if isinstance(first, CodeType) and isinstance(second, CodeType):
        return first.co_name == second.co_name and is_same_code(first, second)
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(_is_same_constant, first, second))
    if isinstance(first, frozenset) and isinstance(second, frozenset):
        return first == second and set(map(type, first)) == set(map(type, second))
    return repr(first) == repr(second)  # equal is not enough: 0.0 and -0.0


_PARTS: Final = (
    *("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)
_NESTED: Final = 0x10
"""The flag of a function that is defined in another one."""

_FEATURES: Final = reduce(
    or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
"""What ``from __future__ import`` changes in the code of a file."""
