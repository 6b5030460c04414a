"""Inspections of tasks in other processes, end to end; none of them harms its job."""

import signal
from pathlib import Path

import pytest

from headgate.base.errors import InspectionFailed
from headgate.base.inspections import (
    ChannelTable,
    PeekRecords,
    ReadChannels,
    SampledActivity,
    SampleStacks,
    StackSamples,
    WaitingRecords,
)
from headgate.control.life_cycle import JobState
from tests.host.control_rig import Launcher, ended, serving
from tests.host.jobs import flows, job_of, slow_double
from tests.host.rig import eventually


def test_stacks_channels_and_waiting_records_of_a_task_in_another_process_are_seen(
    launcher: Launcher, folder: Path
) -> None:
    run, contact = launcher.begin(job_of(folder, slow_double, count=None))
    early = run.inspect("1.0", SampleStacks(), 5)
    with pytest.raises(InspectionFailed, match="it is not deployed yet"):
        early.result(5)
    with pytest.raises(InspectionFailed, match=r"task 7\.0 cannot be .*the job has no such task"):
        run.inspect("7.0", SampleStacks(), 5).result(5)
    with serving(contact) as (first, second):
        eventually(lambda: flows(folder), "data flows")
        asked = [run.inspect(f"{vertex}.0", SampleStacks(0.5), 20) for vertex in (0, 1, 2)]
        found = [future.result(30) for future in asked]
        assert all(isinstance(samples, StackSamples) and samples.samples for samples in found)
        mapped = found[1]
        assert isinstance(mapped, StackSamples)
        line = slow_double.__code__.co_firstlineno + 1
        here = f"slow_double (tests/host/jobs.py:{line})"
        waits = [stack for stack in mapped.stacks if stack.frames[-1] == here]
        assert waits, mapped
        assert {stack.frames[stack.user_at] for stack in waits} == {here}
        assert mapped.cpu_ms < mapped.wall_ms
        assert mapped.count(SampledActivity.BUSY) > 0

        def waiting() -> WaitingRecords:
            found = run.inspect("1.0", PeekRecords(), 20).result(30)
            assert isinstance(found, WaitingRecords)
            return found

        eventually(lambda: waiting().records > 5, "records wait in front of the map")
        numbers = [entry.text for entry in waiting().entries if entry.kind == "record"]
        assert all(number.isdecimal() for number in numbers)
        table = run.inspect("1.0", ReadChannels(), 20).result(30)
        assert isinstance(table, ChannelTable)
        assert sorted((row.producer, row.is_local) for row in table.rows) == [
            ("0.0", True),
            ("0.1", False),
        ]
        assert run.state is JobState.RUNNING
        run.cancel("enough")
        ended(run)
        first.returned()
        second.returned()
    with pytest.raises(InspectionFailed, match="the run is cancelled"):
        run.inspect("1.0", SampleStacks(), 5).result(5)


def test_who_waits_is_answered_when_the_job_ends_and_when_the_time_is_over(
    launcher: Launcher, folder: Path
) -> None:
    run, contact = launcher.begin(job_of(folder, count=None))
    with serving(contact) as (first, second):
        eventually(lambda: flows(folder), "data flows")
        second.signal(signal.SIGSTOP)
        slot = {task.id: task.slot for task in run._machine.plan.tasks}
        of_second = next(task for task, at in slot.items() if at == 1)
        of_first = next(task for task, at in slot.items() if at == 0)
        late = run.inspect(of_second, SampleStacks(0.1), 0.4)
        with pytest.raises(InspectionFailed, match=r"has not answered within 0\.4 s"):
            late.result(30)
        second.signal(signal.SIGCONT)
        long = run.inspect(of_first, SampleStacks(50), 20)
        run.cancel("enough")
        ended(run)
        # Either the task manager told what it had seen, or the run was over before.
        assert isinstance(long.exception(30), InspectionFailed | None)
        first.returned()
        second.returned()


def test_a_worker_that_is_killed_while_it_samples_ends_the_inspection_with_a_sentence(
    launcher: Launcher, folder: Path
) -> None:
    run, contact = launcher.begin(job_of(folder, count=None))
    with serving(contact) as (first, second):
        eventually(lambda: flows(folder), "data flows")
        task = next(task.id for task in run._machine.plan.tasks if task.slot == 1)
        asked = run.inspect(task, SampleStacks(50), 20)
        second.signal(signal.SIGKILL)
        with pytest.raises(InspectionFailed, match="its task manager was lost.*process"):
            asked.result(30)
        ended(run)
        first.returned()
