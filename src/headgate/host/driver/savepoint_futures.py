"""Who waits for savepoints of a run.

Law: everybody who asked is answered once: with the path, or with the reason why there is no
savepoint. Who wants the job to end with it is answered when it has; a job that fails while it ends
goes on from the savepoint, which is told as a failure that names the path.
"""

from collections.abc import Callable
from concurrent.futures import Future

from headgate.base.checkpoints import Stop
from headgate.base.errors import SavepointFailed
from headgate.control.checkpoint_effects import SavepointDone


class SavepointFutures:
    """One thread at a time. Answers are calls, to be made where nobody holds a lock."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[Future[str], Stop]] = {}  # by the savepoint's directory
        self._ending: dict[str, Future[str]] = {}  # they are there, and the job is to end
        self._ended: dict[str, str] = {}  # how it has, before they were there

    def wanted(self, directory: str, stop: Stop) -> "Future[str]":
        """Somebody asks for one."""
        future: Future[str] = Future()
        self._wanted[directory] = future, stop
        return future

    def done(self, told: SavepointDone) -> list[Callable[[], None]]:
        """It is there, or will not be."""
        future, stop = self._wanted.pop(told.directory, (None, Stop.NO))
        if future is None:
            return []
        if told.checkpoint is None:
            return [_refuse(future, told.directory, told.error)]
        if stop.ends:
            self._ending[told.directory] = future
            problem = self._ended.pop(told.directory, None)
            return [] if problem is None else self.attempt_ended(problem)
        return [_answer(future, told.directory)]

    def attempt_ended(self, problem: str) -> list[Callable[[], None]]:
        """The run has ended or begins anew; no ``problem``: it has finished."""
        ending, self._ending = self._ending, {}
        waiting = [directory for directory, (_, stop) in self._wanted.items() if stop.ends]
        self._ended |= {one: problem for one in waiting if one not in self._ended}
        if not problem:
            return [_answer(future, directory) for directory, future in ending.items()]
        why = f"it is there, but the job has not ended with it: {problem}"
        return [_refuse(future, directory, why) for directory, future in ending.items()]


def _answer(future: "Future[str]", directory: str) -> Callable[[], None]:
    return lambda: future.set_result(directory)


def _refuse(future: "Future[str]", directory: str, problem: str) -> Callable[[], None]:
    return lambda: future.set_exception(SavepointFailed(directory, problem))
