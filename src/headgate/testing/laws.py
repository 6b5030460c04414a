"""Laws of users' functions that runs alone show rarely: windows merge in any order."""

import pickle
from collections.abc import Iterator
from itertools import permutations
from typing import Any, Final

from headgate.api.program import Program
from headgate.base.errors import HeadgateError
from headgate.functions.window_functions import AggregateFunction
from headgate.testing.canonical import short_text, text_of

TRIPLES: Final = 12


class MergeUnsound(HeadgateError):
    """The result of an aggregate function depends on the order in which windows merge."""

    def __init__(self, operator: str, function: str, left: str, right: str) -> None:
        super().__init__(
            f"operator {operator!r}: merge() of {function} gives {left} or {right} for the same "
            f"records, by the order of merging; let it be associative, and agree with add()"
        )
        self.operator = operator


def check_aggregates(program: Program, samples: dict[int, list[bytes]]) -> None:
    """Try ``merge`` with records that have come to its operator; raises MergeUnsound."""
    for number, node in program.graph.nodes.items():
        for _, function in node.functions:
            if (
                isinstance(function, AggregateFunction)
                and type(function).merge is not AggregateFunction.merge
            ):
                keys = [edge.ship.key_of for edge in program.graph.inputs_of(number)]
                for records in _triples(samples.get(number, []), keys[0] if keys else None):
                    _check(node.name, function, records)


def _triples(samples: list[bytes], key_of: Any) -> Iterator[tuple[bytes, ...]]:
    """Three records of the same key each."""
    by_key: dict[str, list[bytes]] = {}
    for data in samples:
        key = "" if key_of is None else text_of(key_of(pickle.loads(data)))
        by_key.setdefault(key, []).append(data)
    count = 0
    for of_key in by_key.values():
        for at in range(max(1, len(of_key) - 2)):
            triple = of_key[at : at + 3]
            while len(triple) < 3:
                triple = [*triple, triple[-1]]
            yield tuple(triple)
            count += 1
            if count >= TRIPLES:
                return


def _check(operator: str, function: Any, records: tuple[bytes, ...]) -> None:
    def folded(*parts: bytes) -> Any:
        accumulator = function.create_accumulator()
        for data in parts:
            accumulator = function.add(pickle.loads(data), accumulator)
        return accumulator

    def result(accumulator: Any) -> str:
        return text_of(function.get_result(accumulator))

    for first, second, third in list(permutations(records))[:2]:
        merge = function.merge
        left = result(merge(merge(folded(first), folded(second)), folded(third)))
        right = result(merge(folded(first), merge(folded(second), folded(third))))
        added = result(merge(folded(first, second), folded(third)))
        for other in (right, added):
            if left != other:
                name = type(function).__name__
                raise MergeUnsound(operator, name, short_text(left), short_text(other))
