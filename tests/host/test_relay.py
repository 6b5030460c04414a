"""A relay without the secret: whatever it does to messages ends the connection and runs nothing."""

import os
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import DriverLost
from headgate.base.messages import Register, TaskChanged, TaskState, ToTaskManager
from headgate.control.frames import SEALED_BYTES
from headgate.control.life_cycle import JobState
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.results import ResultServer, ResultWriter
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ConnectionLost, ControlConnection
from headgate.host.shipping.code import ship
from headgate.host.worker.task_manager import run_task_manager
from tests.host.control_rig import TIMES, Launcher, ended, replace_times, task_states
from tests.host.jobs import job_of, vertices_of
from tests.host.relay import Relay, Tamper, as_it_is
from tests.host.rig import eventually

FORGED = "wrong authentication code"


@pytest.fixture
def launcher(no_leaks: None) -> Iterator[Launcher]:
    with ControlServer(times=replace_times(TIMES, cancel_ms=200)) as server:
        yield Launcher(server)


def through(relay: Relay, contact: DriverContact) -> DriverContact:
    return replace(contact, address=relay.address)


def flip(place: int) -> Tamper:
    def tamper(number: int, frame: bytes) -> list[bytes]:
        if number != 1:
            return [frame]
        changed = bytearray(frame)
        changed[place] ^= 1
        return [bytes(changed)]

    return tamper


def swap() -> Tamper:
    held: list[bytes] = []

    def tamper(number: int, frame: bytes) -> list[bytes]:
        if number == 1:
            held.append(frame)
            return []
        return [frame, held.pop()] if held else [frame]

    return tamper


TAMPERS: dict[str, Tamper] = {
    "length": flip(2),
    "code of the length": flip(5),
    "code of the body": flip(SEALED_BYTES - 1),
    "body": flip(SEALED_BYTES),
    "end of the body": flip(-1),
    "repeated": lambda number, frame: [frame, frame] if number == 0 else [frame],
    "left out": lambda number, frame: [] if number == 1 else [frame],
    "swapped": swap(),
    "invented": lambda number, frame: [bytes(len(frame)) if number == 1 else frame],
}


def test_a_relay_that_changes_nothing_is_not_noticed(launcher: Launcher, tmp_path: Path) -> None:
    """So that what the other tests see comes from what their relay does."""
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    heard: list[ToTaskManager | ConnectionLost] = []
    with (
        Relay(launcher.server.address) as relay,
        ControlConnection(through(relay, contact), heard.append) as line,
    ):
        line.send(Register("", 0, ("127.0.0.1", 9)))
        eventually(lambda: len(heard) == 1, "its tasks")
        for task in task_states(run):
            line.send(TaskChanged(str(run.key), task, TaskState.FINISHED))
        assert ended(run).state is JobState.FINISHED
        eventually(lambda: len(heard) == 2, "the end")
    assert [type(message).__name__ for message in heard] == ["Deploy", "Shutdown"]


def test_code_that_was_changed_on_the_way_does_not_run(launcher: Launcher, tmp_path: Path) -> None:
    graph = job_of(tmp_path, parallelism=1)
    code, touched = ship(vertices_of(graph)), tmp_path / "touched"
    evil = pickle.dumps(Evil(str(touched)), 0).ljust(len(code), b".")
    seen = []

    def change(number: int, frame: bytes) -> list[bytes]:
        seen.append(code in frame)
        return [frame.replace(code, evil)]

    run, contact = launcher.begin(graph)
    with Relay(launcher.server.address, to_worker=change) as relay:
        with pytest.raises(DriverLost, match=FORGED):
            run_task_manager(through(relay, contact), 0)
        eventually(lambda: run.state is JobState.FAILING, "the loss")
        run.cancel("enough")
        ended(run)
    assert True in seen, "the relay has had the code"
    assert not touched.exists()


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("how", TAMPERS)
def test_what_is_done_to_a_message_of_the_driver_is_found(
    launcher: Launcher, tmp_path: Path, how: str
) -> None:
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    contact = replace(contact, times=replace_times(contact.times, lost_ms=100))
    heard: list[ToTaskManager | ConnectionLost] = []
    with Relay(launcher.server.address, to_worker=TAMPERS[how]) as relay:
        with ControlConnection(through(relay, contact), heard.append) as line:
            line.send(Register("", 0, ("127.0.0.1", 9)))
            eventually(
                lambda: any(isinstance(message, ConnectionLost) for message in heard), "the end"
            )
            line.heard()
        run.cancel("enough")
        ended(run)
    lost = heard[-1]
    assert isinstance(lost, ConnectionLost) and FORGED in lost.problem
    assert [type(message).__name__ for message in heard[:-1]] in (["Deploy"], [])


@pytest.mark.parametrize("how", TAMPERS)
def test_what_is_done_to_a_message_for_the_driver_is_found(
    launcher: Launcher, tmp_path: Path, how: str
) -> None:
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    heard: list[ToTaskManager | ConnectionLost] = []
    with (
        Relay(launcher.server.address, to_driver=TAMPERS[how]) as relay,
        ControlConnection(through(relay, contact), heard.append) as line,
    ):
        line.send(Register("", 0, ("127.0.0.1", 9)))
        for task in task_states(run):
            line.send(TaskChanged(str(run.key), task, TaskState.FINISHED))
        outcome = ended(run)
        line.heard()
    assert outcome.state is JobState.FAILED
    assert outcome.failure is not None and FORGED in outcome.failure.message


# Results.


@pytest.fixture
def results(no_leaks: None) -> Iterator[ResultServer]:
    server = ResultServer()
    yield server
    server.close()


def send_through(
    server: ResultServer, to_driver: Tamper = as_it_is, to_worker: Tamper = as_it_is
) -> list[Any]:
    """Three lists and a flush; what the driver took, and an error if the writer noticed."""
    taken: list[Any] = []
    result_address = server.open(taken.extend)
    with Relay(server.address, to_worker, to_driver) as relay:
        writer = ResultWriter(replace(result_address, address=relay.address))
        try:
            for number in range(3):
                writer.write([number])
            writer.flush()
        except DriverLost as error:
            taken.append(error)
        finally:
            writer.close()
            server.close_stream(result_address)
    return taken


def test_results_pass_a_relay_that_changes_nothing(results: ResultServer) -> None:
    assert send_through(results) == [0, 1, 2]


@pytest.mark.parametrize("how", TAMPERS)
def test_what_is_done_to_results_is_found_and_the_flush_fails(
    results: ResultServer, how: str
) -> None:
    *taken, error = send_through(results, TAMPERS[how])
    assert isinstance(error, DriverLost)
    assert taken in ([0], [])


@pytest.mark.parametrize("how", ["length", "body", "invented", "code of the body"])
def test_an_answer_that_the_driver_did_not_give_is_no_answer(
    results: ResultServer, how: str
) -> None:
    first = {
        "length": lambda frame: b"\x01" + frame[1:],
        "body": lambda frame: frame[:-1] + bytes([frame[-1] ^ 1]),
        "code of the body": lambda frame: bytes(SEALED_BYTES),
        "invented": lambda frame: bytes(4) + os.urandom(SEALED_BYTES - 4),
    }[how]
    *taken, error = send_through(results, to_worker=lambda number, frame: [first(frame)])
    assert isinstance(error, DriverLost) and FORGED in str(error)
    assert taken == [0, 1, 2]


def test_a_relay_that_swallows_records_and_says_that_all_was_taken_is_found_out(
    results: ResultServer,
) -> None:
    failed = threading.Event()

    def swallow(number: int, frame: bytes) -> list[bytes]:
        if number < 3:
            return []
        failed.set()
        return [frame]

    *taken, error = send_through(results, swallow)
    assert isinstance(error, DriverLost) and failed.is_set()
    assert taken == []


def test_code_and_pickled_sinks_do_not_hold_the_secret_of_results(results: ResultServer) -> None:
    secret = b"j" * 32
    result_address = results.open(lambda records: None, "job", secret)
    travelled = pickle.dumps(result_address)
    assert result_address.secret not in travelled and secret not in travelled
    arrived: Any = pickle.loads(travelled)
    contact = DriverContact(results.address, "job", secret)
    with contact.in_use():
        assert arrived.contact.secret == result_address.secret
        ResultWriter(arrived).close()
