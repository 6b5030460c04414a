"""Which run of a job an origin of a log belongs to, and what of the log was read and removed.

Writers of an output are named by the start of the job, its attempt and their task, so that runs
have an order. Law: when a checkpoint of a run is committed, every commit of earlier runs is done,
because all tasks repeat what they restore before they write. So what was read of earlier runs is
noted as the *floor* above them and their count, however often a job was restarted. Queries are no
writers; each has a note of its own, for a query that was stopped looks like one that is gone.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

Run: TypeAlias = tuple[int, int]
"""The start of the job, counted in the log, and its attempt."""

_WRITER: Final = re.compile(r"w(\d+)-(\d+)-(\d+)-[0-9a-f]+")


def writer_name(run: Run, subtask: int) -> str:
    """An origin that no other writer has."""
    return f"w{run[0]}-{run[1]}-{subtask}-{secrets.token_hex(4)}"


def run_of(origin: str) -> Run | None:
    """The run of a writer; None: it is a query."""
    match = _WRITER.fullmatch(origin)
    return None if match is None else (int(match[1]), int(match[2]))


class Committed(msgspec.Struct, frozen=True, order=True):
    """The newest checkpoint of which rows are or were in the log, and whose it is."""

    run: Run = (0, 0)
    checkpoint: int = 0
    """0: there is none."""


class RemovedEntries(msgspec.Struct, frozen=True):
    """What of a log was read, and is removed or about to be."""

    numbers: dict[str, int] = {}
    """Up to which number, of each origin."""
    floor: Run = (0, 0)
    """All of earlier runs was read."""
    folded: int = 0
    """How many entries those were: writers count them from 1."""
    last: Committed = Committed()

    def covers(self, origin: str, number: int) -> bool:
        return self._is_below(origin) or self.numbers.get(origin, -1) >= number

    def is_behind(self, read: Mapping[str, int], folded: int) -> bool:
        """Whether somebody who has read this has missed some of what is below the floor."""
        below = sum(number for origin, number in read.items() if self._is_below(origin))
        return folded + below < self.folded

    def _is_below(self, origin: str) -> bool:
        run = run_of(origin)
        return run is not None and run < self.floor

    def merged(
        self, read: Mapping[str, int], gone: Iterable[Committed], left: Iterable[str]
    ) -> "RemovedEntries":
        """With what was read now: ``gone`` are its checkpoints, ``left`` the origins of the rest.

        An entry without a checkpoint tells nothing of earlier runs: another task of its own run may
        not have repeated their commits yet.
        """
        last = max((each for each in gone if each.checkpoint), default=self.last)
        last = max(last, self.last)
        runs = [run for run in map(run_of, left) if run is not None]
        floor = max(self.floor, min([*runs, last.run]))
        numbers = {**self.numbers}
        for origin, number in read.items():
            numbers[origin] = max(number, numbers.get(origin, -1))
        kept = {o: n for o, n in numbers.items() if (run := run_of(o)) is None or run >= floor}
        folded = self.folded + sum(numbers.values()) - sum(kept.values())
        return RemovedEntries(kept, floor, folded, last)
