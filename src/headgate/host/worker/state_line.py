"""Point reads of keyed state in a task manager: questions of the driver, answered by the tasks.

The first question comes over the control connection, whose threads compete with the tasks for the
interpreter. It makes the task manager open a second connection to the driver, a line that whoever
holds the baton polls between two bundles: a question that comes there waits for no other thread.
Law: a question is answered once, or the driver notices that the line is gone; a line that cannot be
opened costs promptness alone. Lines are closed before the exchange is.
"""

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs

from headgate.base.errors import HeadgateError, PeerBrokeProtocol, TaskCancelled
from headgate.base.inspections import ReadState, StateValues
from headgate.base.messages import (
    ControlTimes,
    Heartbeat,
    Inspect,
    Inspected,
    StateLineOpened,
)
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ProvenConnection, connect_and_prove
from headgate.host.net.exchange import Exchange
from headgate.host.net.loop import READ, WRITE, Loop
from headgate.host.worker.deployment import Deployment

log = logging.getLogger(__name__)

LINE_THREADS: Final = "headgate-state-line"
CONNECT_MS: Final = 2_000
AGAIN_S: Final = 5.0
"""Before a line is tried again that could not be opened, or was lost."""
MOST_UNSENT: Final = 16 * 1024 * 1024
"""A driver that does not read its answers gets no more of them."""

Current: TypeAlias = Callable[[], tuple[str, Deployment | None]]
"""The present run and its tasks."""
Send: TypeAlias = Callable[[Inspected], None]


class StateQuestions:
    """Questions about state to one task manager, which calls it on its own thread."""

    def __init__(
        self, exchange: Exchange, contact: DriverContact, slot: int, current: Current, send: Send
    ) -> None:
        """``send`` takes answers to questions that have come over the control connection."""
        times = structs.replace(contact.times, connect_ms=CONNECT_MS)
        self._contact = replace(contact, times=times)
        self._exchange = exchange
        self._slot = slot
        self._current = current
        self._send = send
        self._line: StateLine | None = None  # as the following: of the baton's holder
        self._closed = False
        self._opener: threading.Thread | None = None
        self._next_s = 0.0

    def asked(self, question: Inspect) -> None:
        """A question has come over the control connection."""
        self._exchange.loop.post(partial(self._read, question, self._send))
        is_opening = self._opener is not None and self._opener.is_alive()
        if self._line is None and not is_opening and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + AGAIN_S
            self._opener = threading.Thread(target=self._open, name=LINE_THREADS, daemon=True)
            self._opener.start()

    def close(self) -> None:
        """No question is answered any more; the line is gone afterwards."""
        with self._exchange.inside():
            self._closed = True
            if self._line is not None:
                self._line.close()
        if self._opener is not None:
            self._opener.join(CONNECT_MS / 1000)

    def _open(self) -> None:
        try:
            proven = connect_and_prove(self._contact)
        except (OSError, HeadgateError) as error:
            log.debug("no line for reads of state can be opened: %s", error)
            return
        opened = StateLineOpened(self._contact.stage, self._slot, os.getpid(), socket.gethostname())
        try:
            proven.socket.sendall(proven.writer.encode(opened))
            proven.socket.setblocking(False)
        except OSError as error:
            log.debug("the line for reads of state has broken: %s", error)
            proven.socket.close()
            return
        with ExitStack() as undo, suppress(TaskCancelled):  # the exchange may have closed meanwhile
            undo.callback(proven.socket.close)
            with self._exchange.inside():
                if not self._closed:
                    self._line = StateLine(
                        proven, self._exchange.loop, self._contact.times, self._read, self._lost
                    )
                    undo.pop_all()

    # Inside the baton.

    def _lost(self) -> None:
        self._line = None

    def _read(self, question: Inspect, send: Send) -> None:
        def answer(found: StateValues | str) -> None:
            values, problem = (None, found) if isinstance(found, str) else (found, "")
            send(Inspected(question.run, question.id, question.task, values, problem))

        run, tasks = self._current()
        if self._closed or tasks is None or question.run != run:
            answer("the run has ended")
        elif isinstance(question.what, ReadState):
            tasks.read_state(question.task, question.what, answer)
        else:
            answer("only state is read over this connection")


class StateLine:
    """One connection to the driver; used inside the baton. See ``Pollable``."""

    def __init__(
        self,
        proven: ProvenConnection,
        loop: Loop,
        times: ControlTimes,
        on_question: Callable[[Inspect, Send], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._driver = proven
        self._socket = proven.socket
        self._fd = self._socket.fileno()
        self._loop = loop
        self._interval_ms = float(times.heartbeat_interval_ms)
        self._on_question = on_question
        self._on_closed = on_closed
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._closed = False
        loop.add(self._fd, self, READ)
        loop.later(self._interval_ms, self._beat)
        loop.later(0, partial(self.ready, READ))  # what came with the welcome, no poll would see

    def ready(self, mask: int) -> None:
        """The poll reports events for the socket."""
        if self._closed:
            return
        try:
            if mask & WRITE:
                self._flush()
            if mask & ~WRITE:
                for message in self._driver.received():
                    if isinstance(message, Inspect):
                        self._on_question(message, self.send)
        except (OSError, PeerBrokeProtocol) as error:
            log.debug("the line for reads of state is lost: %s", error)
            self.close()

    def send(self, message: Inspected | Heartbeat) -> None:
        """As far as the socket takes it now; the rest follows."""
        if self._closed:
            return
        frame = memoryview(self._driver.writer.encode(message))
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        try:
            if self._unsent_bytes > MOST_UNSENT:
                raise ConnectionError("the driver does not read its answers")
            if len(self._unsent) == 1:
                self._flush()
        except OSError as error:
            log.debug("the line for reads of state is lost: %s", error)
            self.close()

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            self._loop.remove(self._fd)
            self._socket.close()
            self._on_closed()

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                self._unsent_bytes -= sent
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        self._loop.change(self._fd, READ | WRITE if self._unsent else READ)

    def _beat(self) -> None:
        if not self._closed:
            self.send(Heartbeat())
            self._loop.later(self._interval_ms, self._beat)
