"""A driver that says what a test says, and task managers in threads of this process.

The control connection, the exchanges and the tasks are real; only the driver's judgement is not.
"""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from headgate.base.checkpoints import CheckpointOptions, TaskRestore
from headgate.base.messages import (
    Cancel,
    CheckpointDeclined,
    CheckpointOrder,
    CheckpointTriggered,
    ControlTimes,
    Deploy,
    Register,
    Shutdown,
    TaskChanged,
    TaskState,
    ToDriver,
    ToTaskManager,
)
from headgate.base.settings import StateSettings
from headgate.host.driver.control_peer import ControlPeer
from headgate.host.net.contact import DriverContact
from headgate.host.shipping.code import ship
from headgate.host.worker.task_manager import run_task_manager
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import JobGraph
from tests.host.control_rig import SECRET, SETTINGS, TIMES, replace_times
from tests.host.jobs import vertices_of
from tests.host.rig import eventually

_M = TypeVar("_M")


class Manager:
    """One task manager and the driver's end of its connection."""

    def __init__(self, contact: DriverContact, slot: int, port: socket.socket) -> None:
        self.heard: list[ToDriver] = []
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._serve, args=(contact, slot), daemon=True)
        self.thread.start()
        sock, _ = port.accept()
        self.peer = ControlPeer(sock, f"slot-{slot}", contact.times)
        self.peer.prove(lambda job: SECRET)
        first = self.peer.first_message()
        assert isinstance(first, Register)
        self.address = first.data_address
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def close(self) -> None:
        self.peer.post(Shutdown("any"))
        self.thread.join(20)
        assert not self.thread.is_alive(), "the task manager does not leave"
        self._listener.join(20)
        self.peer.close()

    def _serve(self, contact: DriverContact, slot: int) -> None:
        try:
            run_task_manager(contact, slot)
        except BaseException as error:
            self.error = error

    def _listen(self) -> None:
        for message in self.peer.messages():
            self.heard.append(message)


class Scripted:
    """Tells all task managers what the test wants to be told."""

    def __init__(self, managers: Sequence[Manager]) -> None:
        self.managers = managers

    def send(self, message: ToTaskManager, slot: int | None = None) -> None:
        for number, manager in enumerate(self.managers):
            if slot in (None, number):
                manager.peer.post(message)

    def deploy(
        self,
        run: str,
        graph: JobGraph,
        *,
        with_code: bool = True,
        checkpoints: CheckpointOrder | None = None,
        restores: Mapping[str, TaskRestore] | None = None,
        attempt: int = 0,
    ) -> list[str]:
        """Deploy all tasks of a run; their ids."""
        execution = build_execution_graph(graph, run, attempt, restores)
        assert execution.slots <= len(self.managers)
        code = ship(vertices_of(graph)) if with_code else None
        homes = {task.id: self.managers[task.slot].address for task in execution.tasks}
        for slot in range(len(self.managers)):
            tasks = [task for task in execution.tasks if task.slot == slot]
            if tasks:
                order = Deploy(run, "job", attempt, {}, tasks, {**homes}, code, checkpoints)
                self.send(order, slot)
        return list(homes)

    def trigger(self, run: str, graph: JobGraph, checkpoint: int, **options: Any) -> None:
        """Let all sources begin a checkpoint."""
        for task in build_execution_graph(graph, run, 0).tasks:
            if not task.gates:
                made = CheckpointOptions(1000, **options)
                self.send(CheckpointTriggered(run, task.id, checkpoint, made), task.slot)

    def settle(self, run: str) -> None:
        """Until every task manager, which is at this run, has taken all that was sent before."""
        number = 10**6 + len(self.heard(CheckpointDeclined))
        self.send(CheckpointTriggered(run, "nobody", number, CheckpointOptions(1000)))
        eventually(
            lambda: all(
                any(
                    isinstance(w, CheckpointDeclined) and w.checkpoint == number
                    for w in manager.heard
                )
                for manager in self.managers
            ),
            "an answer",
        )

    def heard(self, kind: type[_M]) -> list[_M]:
        """Of all, in the order of their slots."""
        return [
            word for manager in self.managers for word in manager.heard if isinstance(word, kind)
        ]

    def changes(self, run: str) -> dict[str, list[TaskState]]:
        found: dict[str, list[TaskState]] = {}
        for word in self.heard(TaskChanged):
            if word.run == run:
                found.setdefault(word.task, []).append(word.state)
        return found

    def failures(self, run: str) -> list[Any]:
        words = [word for word in self.heard(TaskChanged) if word.run == run]
        return [word.failure for word in words if word.failure]

    def await_all(self, run: str, tasks: Sequence[str], state: TaskState) -> None:
        def there() -> bool:
            found = self.changes(run)
            return all(state in found.get(task, ()) for task in tasks)

        eventually(there, f"{state} of {tasks}: {self.changes(run)} {self.failures(run)}")

    def await_end(self, run: str, tasks: Sequence[str]) -> None:
        def there() -> bool:
            found = self.changes(run)
            return all(task in found and found[task][-1].has_ended for task in tasks)

        eventually(there, f"the end of {tasks}")

    def cancel(self, run: str, tasks: Sequence[str]) -> None:
        self.send(Cancel(run, "the test says so"))
        self.await_end(run, tasks)


@contextmanager
def scripted(
    slots: int = 2, state: StateSettings | None = None, **times: int
) -> Iterator[Scripted]:
    """Task managers that wait for orders; they must leave in order at the end."""
    made: ControlTimes = replace_times(TIMES, **times)
    with ExitStack() as end, socket.create_server(("127.0.0.1", 0)) as port:
        address = port.getsockname()[:2]
        contact = DriverContact(
            address, "job", SECRET, SETTINGS, made, state=state or StateSettings()
        )
        managers = []
        for slot in range(slots):
            managers.append(Manager(contact, slot, port))
            end.callback(managers[-1].close)
        yield Scripted(managers)
