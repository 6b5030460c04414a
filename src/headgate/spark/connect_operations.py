"""The operations that clients of Spark Connect in this process have sent and wait for.

PySpark's client sends every operation through two methods, which note it while it runs. Law: an
operation goes PySpark's way, untouched, except that a closed client waits for no other try.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

LOOK_S: Final = 0.2
"""Between two looks at whether a client that waits before it tries again was closed."""


@dataclass(frozen=True, slots=True)
class ConnectOperation:
    """One that runs, and the client that has sent it."""

    client: Any
    plan: Any
    progress: Any = None
    """PySpark's, of which the server tells from time to time; None: nobody wants to know."""


operations: Final[dict[str, ConnectOperation]] = {}

on_operation_ended: Final[list[Callable[[str], None]]] = []
"""Called with the id of each operation that a client of this process waits for no more."""


def running_operations(client: Any) -> dict[str, int]:
    """The ids of operations that a client waits for, with the number of tasks seen to run."""
    own = {name: found for name, found in list(operations.items()) if found.client is client}
    return {name: int(getattr(found.progress, "_running", 0)) for name, found in own.items()}


def note_operations() -> None:
    """Note the operations of all clients of this process from now on; idempotent."""
    from pyspark.sql.connect.client.core import SparkConnectClient

    client: Any = SparkConnectClient
    for name, wrapped in (
        ("_execute", _noted_call),
        ("_execute_and_fetch_as_iterator", _noted_iterator),
        ("_retrying", _ended_by_close),
    ):
        usual: Callable[..., Any] | None = getattr(client, name, None)
        if usual is not None and not hasattr(usual, "is_headgate"):  # none: another PySpark
            noted: Any = wraps(usual)(wrapped(usual))
            noted.is_headgate = True
            setattr(client, name, noted)


def _noted_call(usual: Callable[..., Any]) -> Callable[..., Any]:
    def execute(self: Any, req: Any, *rest: Any, **named: Any) -> Any:
        operations[req.operation_id] = ConnectOperation(self, req.plan)
        try:
            return usual(self, req, *rest, **named)
        finally:
            _note_end(req.operation_id)

    return execute


def _noted_iterator(usual: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def execute(self: Any, req: Any, *rest: Any, **named: Any) -> Iterator[Any]:
        progress = named.get("progress")
        operations[req.operation_id] = ConnectOperation(self, req.plan, progress)
        try:
            yield from usual(self, req, *rest, **named)
        finally:
            _note_end(req.operation_id)

    return execute


def _note_end(operation: str) -> None:
    operations.pop(operation, None)
    for call in on_operation_ended:
        call(operation)


def _ended_by_close(usual: Callable[..., Any]) -> Callable[..., Any]:
    def retrying(self: Any) -> Any:
        made = usual(self)
        sleep = getattr(made, "_sleep", None)
        if sleep is time.sleep:

            def wait(seconds: float) -> None:
                until = time.monotonic() + seconds
                while not self.is_closed and (left := until - time.monotonic()) > 0:
                    time.sleep(min(left, LOOK_S))

            made._sleep = wait
        return made

    return retrying
