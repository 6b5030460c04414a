"""The source text of a job's functions, which travels with them so that workers can inline them.

It is read in the driver: a worker on another machine has no file of the user's program. Law: text
that cannot be read, or that is not Python, is left out; the function is called then, as ever.
"""

import linecache
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeAlias

from headgate.core.loops.definitions import Definition, definitions_in, plain_function
from headgate.plan.job_graph import JobVertex

Read: TypeAlias = dict[str, dict[int, list[Definition]]]
"""The definitions of every file that was read, by the line that they begin in."""

METHODS: Final = (
    *("map", "map1", "map2", "flat_map", "flat_map1", "flat_map2", "filter", "reduce"),
    *("process_element", "process_element1", "process_element2", "process_broadcast_element"),
)
"""Methods of function objects that are called for each record by loops which can inline them."""


def with_definitions(
    vertices: Mapping[int, JobVertex], functions: Mapping[int, Sequence[tuple[str, object]]]
) -> dict[int, JobVertex]:
    """These vertices, whose operators have the definitions of their functions."""
    read: Read = {}
    found = {}
    for number, vertex in vertices.items():
        operators = tuple(
            replace(
                operator,
                definitions=tuple(
                    definition
                    for _, function in functions.get(operator.id, ())
                    for definition in _definitions_of(function, read)
                ),
            )
            for operator in vertex.chain.operators
        )
        found[number] = replace(vertex, chain=replace(vertex.chain, operators=operators))
    return found


def _definitions_of(function: object, read: Read) -> Iterator[Definition]:
    """Those that begin where the function does, or one of its methods."""
    for candidate in (function, *(_method_of(function, name) for name in METHODS)):
        plain = plain_function(candidate)
        if plain is None:
            continue
        file, line = plain.__code__.co_filename, plain.__code__.co_firstlineno
        if file not in read:
            read[file] = _read(file)
        yield from read[file].get(line, ())


def _method_of(function: object, name: str) -> object:
    try:
        return getattr(function, name, None)
    except Exception:  # a property may do anything; who calls it will see
        return None


def _read(file: str) -> dict[int, list[Definition]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has seen them when the file was loaded
            return _definitions_in(tuple(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


@lru_cache(maxsize=16)
def _definitions_in(lines: tuple[str, ...]) -> dict[int, list[Definition]]:
    """To read a module takes many milliseconds, and a job is planned again when it restarts."""
    return definitions_in(list(lines))
