"""Commits lots of staged files to a table of a lake exactly once, whatever the table's format.

The table itself notes the last lot of each writer, in the same commit as the lot's files. Law: no
lot is written that the table has noted, and a commit is refused by the table (a conflict) if the
note may have changed since it was read; so anybody may repeat a commit, and two may do so at the
same time. Conflicts are tried again for a bounded time; a file that is gone ends the job.
"""

import logging
import random
import re
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, PartLost, TableUnfit, TableUnready
from headgate.base.object_store import s3_problem
from headgate.connectors.arrow.staged_rows import StagedLot
from headgate.connectors.libraries import clause
from headgate.connectors.servers import Sleep
from headgate.functions.sink import Committer

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS: Final = 300_000
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 5.0
MOST_CHARS: Final = 1000
"""Of what a library says about an error: some stores answer with pages."""


class CommitTarget(Protocol):
    """A table as the committer sees it; ``table`` is what its library has opened."""

    where: str
    """The sink and its table, in a few words, for messages."""
    conflict: type[Exception]
    """What ``write`` raises if others have committed since the table was loaded."""

    def load(self) -> Any:
        """The table as of now; raises TableUnfit if there is none."""

    def table_id(self, table: Any) -> str:
        """Of this very table: another one of the same name has another id."""

    def has(self, table: Any, lot: StagedLot) -> bool:
        """Whether the lot was committed."""

    def file_size(self, table: Any, file: Any) -> int | None:
        """Of a staged file, in bytes; None: it is not there."""

    def shown(self, file: Any) -> str:
        """Its path in messages."""

    def check(self, table: Any, lots: Sequence[StagedLot]) -> None:
        """Raises TableUnfit if the table would not read their files."""

    def write(self, table: Any, lots: Sequence[StagedLot]) -> None:
        """One commit with the files and the notes of all lots."""

    def settle(self, table: Any) -> None:
        """Make the commit durable that was made after ``load``."""

    def settle_found(self, table: Any, lots: Sequence[StagedLot]) -> None:
        """The same for lots that the table had: whoever wrote them may have died right after."""

    def discard(self, table: Any, lot: StagedLot) -> None:
        """The lot is in the table; its files are not needed, if they only held changes."""

    def close(self) -> None: ...


class StagedLotCommitter(Committer):
    """Commits lots together, or one after the other if their order counts."""

    def __init__(
        self, target: CommitTarget, in_order: bool, timeout_ms: int, sleep: Sleep = time.sleep
    ) -> None:
        self._sleep = sleep
        self._target = target
        self._in_order = in_order
        self._timeout_s = timeout_ms / 1000

    def commit(self, committables: Sequence[Record]) -> None:
        lots: list[StagedLot] = list(committables)
        if not self._in_order:
            self._enter(lots)
            return
        for lot in lots:
            table = self._enter([lot])
            self._target.discard(table, lot)

    def close(self) -> None:
        self._target.close()

    def _enter(self, lots: list[StagedLot]) -> Any:
        """Until the table has all of them, whoever has written them; the table."""
        target = self._target
        give_up = time.monotonic() + self._timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            table = target.load()
            due = [lot for lot in lots if not target.has(table, lot)]
            if not due:
                target.settle_found(table, lots)
                return table
            try:
                self._check(table, due)
                target.write(table, due)
            except target.conflict as error:
                if time.monotonic() + wait_s > give_up:
                    raise TableUnready(
                        f"{target.where}: others have committed to it for {self._timeout_s:g} s "
                        f"without a gap ({words(error)}); let fewer jobs and tasks write to it, or "
                        f"raise commit_timeout_ms"
                    ) from error
                self._sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                continue
            except Exception as error:
                self._raise_unless_in(due, error)
            target.settle(table)
            return table

    def _check(self, table: Any, lots: Sequence[StagedLot]) -> None:
        target = self._target
        own = target.table_id(table)
        for lot in lots:
            if lot.table != own:
                raise TableUnfit(
                    f"{target.where}: it was replaced by another table (id {own}) while records "
                    f"waited for their commit (to id {lot.table}); bring the first one back, or "
                    f"start the job without its checkpoint"
                )
        target.check(table, lots)
        for file in (file for lot in lots for file in lot.files):
            size = target.file_size(table, file)
            if size != file.size:
                what = "is not there" if size is None else f"has {size} bytes, not {file.size}"
                raise PartLost(
                    target.shown(file),
                    f"{what}, and its records wait for their commit: a clean-up of the table or "
                    f"somebody else has taken it; go on from an older checkpoint",
                )

    def _raise_unless_in(self, lots: Sequence[StagedLot], error: Exception) -> None:
        """An answer can get lost, and what follows a commit can fail; or others were faster."""
        target = self._target
        table = target.load()
        if all(target.has(table, lot) for lot in lots):
            log.warning("%s: committed, and then: %s", target.where, words(error))
        elif isinstance(error, HeadgateError):
            raise error
        else:
            raise TableUnready(
                f"{target.where}: it does not take a commit: "
                f"{reason(error, 'check its address, rights and space')}"
            ) from error


def reason(error: BaseException, advice: str) -> str:
    """Why, and what to do, as messages end; an object store's answer in a few words."""
    problem, cure = s3_problem(str(error))
    return f"{problem}; {cure}" if problem else f"{words(error)}; {advice}"


def words(error: BaseException) -> str:
    """An error of a library in a line, without colours."""
    text = clause(" ".join(_COLOUR.sub("", str(error)).split())[:MOST_CHARS])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
