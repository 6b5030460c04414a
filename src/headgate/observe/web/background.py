"""Calls that wait, off the event loop: each on a thread of its own, so many at a time.

Law: the event loop never waits for a job, a disk or a task; when all threads are in use, a request
is refused at once. Threads end with their call, and with the process at the latest.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from headgate.observe.web.parameters import BadRequest

MOST: Final = 16

_Result = TypeVar("_Result")


class Background:
    """Used on the event loop."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._running = 0

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """What the call returns or raises; raises BadRequest if there are too many."""
        if self._running >= self._most:
            raise BadRequest("the driver is busy with other requests; ask again in a moment", 503)
        self._running += 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def settle(result: _Result | None, error: BaseException | None) -> None:
            self._running -= 1
            if future.done():  # nobody waits any more
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type] # without an error it is one
            else:
                future.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = call()
            except BaseException as problem:
                error = problem
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        try:
            threading.Thread(target=work, name="headgate-web-call", daemon=True).start()
        except RuntimeError as error:  # the process has no room for another thread
            self._running -= 1
            raise BadRequest("the driver cannot start a thread; ask again later", 503) from error
        return await future
