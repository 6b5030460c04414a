"""Operators with an error policy, as tests run them: one operator, its output and its log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headgate.base.elements import Bundle
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.operator import Operator
from headgate.functions.error_policy import DeadLetter, ErrorPolicy
from headgate.functions.function import OutputTag
from tests.core.chain.kit import KeptOutput, context, with_sources

DEAD = OutputTag("dead")
LETTERS = ErrorPolicy.dead_letters(DEAD)


class TolerantRun:
    """An operator whose failing records become dead letters, or are skipped."""

    def __init__(
        self,
        operator: Operator,
        policy: ErrorPolicy = LETTERS,
        reuse: bool = False,
        within: OperatorContext | None = None,
    ) -> None:
        self.lines: list[tuple[str, BaseException | None]] = []
        self.output = KeptOutput()
        self.operator = operator
        self.elapsed_ms = 0.0
        opened = replace(
            within or context(),
            warn=lambda text, error: self.lines.append((text, error)),
            elapsed_ms=lambda: self.elapsed_ms,
        )
        self.failures = RecordFailures(policy, opened.operator, self.output, True)
        self.failures.open(opened)
        operator.failures = self.failures
        operator.reuses_objects = reuse
        operator.set_up(self.output)
        operator.open(with_sources(operator, opened))

    def process(self, *records: Any, number: int = 0, times: Sequence[int] | None = None) -> None:
        bundle = Bundle(list(records), None if times is None else list(times))
        self.operator.process(bundle, number)

    @property
    def records(self) -> list[Any]:
        return self.output.records

    @property
    def letters(self) -> list[DeadLetter]:
        return self.output.side_records(DEAD.tag_id)

    @property
    def rejected(self) -> list[Any]:
        """The records of the dead letters."""
        return [letter.record for letter in self.letters]
