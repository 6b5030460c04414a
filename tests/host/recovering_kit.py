"""A job at a control server, as the launcher opens it, with frequent checkpoints."""

from headgate.base.messages import ControlTimes
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.driver.checkpoint_setup import CheckpointSetup
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.host.net.contact import DriverContact
from headgate.host.shipping.code import ship
from headgate.plan.job_graph import JobGraph
from tests.host.control_rig import SECRET, SETTINGS
from tests.host.jobs import vertices_of

SOON = {
    "execution.checkpointing.interval": "20 ms",
    "execution.checkpointing.unaligned.enabled": "false",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "1 ms",
    "pipeline.job-id": "x",
}


class Job:
    """A job at a server, as the launcher opens it."""

    def __init__(
        self,
        server: ControlServer,
        graph: JobGraph,
        times: ControlTimes | None = None,
        **settings: str,
    ) -> None:
        self.server = server
        self.graph = graph
        self.setup = CheckpointSetup({**SOON, **settings}, graph)
        self.keeper: CheckpointKeeper = self.setup.open(is_local=True)
        code = ship(vertices_of(graph))
        server.open_job(
            "x",
            SECRET,
            lambda key: self.setup.plan(self.keeper, str(key), code, {}),
            times=times,
            keeper=self.keeper,
        )

    def begin(self, stage: str = "") -> DriverRun:
        return self.server.begin("x", stage)

    def contact(self, stage: str = "") -> DriverContact:
        return self.server.contact("x", SETTINGS, stage)

    def close(self, state: JobState = JobState.FAILED) -> None:
        self.server.close_job("x")
        self.keeper.close(state)


def completed(job: Job) -> int:
    return job.keeper.statistics().completed
