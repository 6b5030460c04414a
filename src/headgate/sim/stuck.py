"""Who may be stuck after trouble, before the coordinator cancels what is left.

A task may wait for ever if it writes for a reader that has ended without ever asking for its part,
or if it reads from, or writes for, a task that may itself be stuck. Everybody else must have ended.
"""

from headgate.base.settings import FlowControl
from headgate.core.egress.pipelined import PipelinedSubpartition
from headgate.sim.coordinator import Coordinator
from headgate.sim.ledger import CheckFailed
from headgate.sim.programs import Job
from headgate.sim.segments import remote_channels
from headgate.sim.tasks import Fate


def check_stuck(coordinator: Coordinator) -> None:
    """Raise if a task is stuck and no trouble explains it."""
    left = [job for job in coordinator.jobs.values() if not job.task.is_over]
    explained: list[str] = []
    grown = True
    while grown:
        grown = False
        for job in left:
            if job.name not in explained and _may_be_stuck(coordinator, job, explained):
                explained.append(job.name)
                grown = True
    for job in left:
        if job.name not in explained:
            raise CheckFailed(
                f"{job.name} waits for {job.task.waits_for}, and no trouble explains that"
            )


def _may_be_stuck(coordinator: Coordinator, job: Job, explained: list[str]) -> bool:
    producers = coordinator.producers_of(job.name)
    consumers = coordinator.consumers_of(job.name)
    if any(name in explained for name in (*producers, *consumers)):
        return True
    if job.task.fate is Fate.WAITING:
        return coordinator.never_starts(job.name) or any(
            coordinator.jobs[name].task.is_over
            and coordinator.jobs[name].task.fate is not Fate.FINISHED
            for name in producers
        )
    return _has_deserted_reader(coordinator, job) or _is_behind_another(coordinator, job)


def _is_behind_another(coordinator: Coordinator, job: Job) -> bool:
    """Without credits a channel that takes nothing stops the whole connection, by design."""
    settings = coordinator.scenario.settings
    if settings.flow_control is FlowControl.CREDIT or job.inbox is None:
        return False
    links = [channel._link for channel in remote_channels([job])]
    return any(link is not None and link.decoder.paused for link in links)


def _has_deserted_reader(coordinator: Coordinator, job: Job) -> bool:
    """A reader has ended, and its subpartition is still there."""
    output = job.output
    if output is None:
        return False
    for name, index in coordinator.readers_of(output.plan.partition):
        subpartition = output.partition.subpartitions[index]
        is_left = isinstance(subpartition, PipelinedSubpartition) and not subpartition.released
        if is_left and coordinator.jobs[name].task.is_over:
            return True
    return False
