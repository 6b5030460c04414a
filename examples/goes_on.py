"""A job that is killed and goes on: python examples/goes_on.py [worker|driver]

Payments are added up for each account, and every balance is written to a file, once. Halfway a
process of the job is killed: one of the workers, or the driver with everything it has started.
Balances are complete in the end, and none is there twice.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headgate import (
    Configuration,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from headgate.datastream.connectors import DataGeneratorSource, JsonLinesSink

PAYMENTS = 3000
ACCOUNTS = 4


class Balance(KeyedProcessFunction):
    """Adds up the payments of an account; kills its own process if it is told to, once."""

    def __init__(self, folder: Path, kills: bool) -> None:
        self.killed, self.checkpoints = folder / "killed", folder / "checkpoints"
        self.kills = kills

    def open(self, runtime_context: RuntimeContext) -> None:
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        if self.kills and value > PAYMENTS // 2 and not self.killed.exists():
            self.kill_once()
        balance = (self.balance.value() or 0) + value
        self.balance.update(balance)
        yield ctx.get_current_key(), balance

    def kill_once(self) -> None:
        if any(self.checkpoints.glob("*/chk-*/_metadata")):  # there is one to go on from
            self.killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, kills: bool = False) -> int:
    """The job; how often it was restarted."""
    settings = {
        "pipeline.job-id": "balances",  # by which a later driver finds the checkpoints
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.interval": "100 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    payments = env.from_source(DataGeneratorSource(abs, PAYMENTS, 1500.0), None, "payments")
    balances = payments.key_by(lambda payment: payment % ACCOUNTS).process(Balance(folder, kills))
    balances.uid("balances").sink_to(JsonLinesSink(folder / "balances")).uid("files")
    client = env.execute_async("balances")
    client.get_job_execution_result().result()
    return int(str(client.get_metrics()["job.restarts"]))


def written(folder: Path) -> list[tuple[int, int]]:
    """What is there for good."""
    parts = (folder / "balances").glob("part-*.jsonl")
    return [tuple(json.loads(line)) for part in parts for line in part.read_text().splitlines()]


def kill_driver(folder: Path) -> int:
    """Start a driver, kill it when there are results, start it again; results at the kill."""
    command = [sys.executable, __file__, "run", str(folder)]
    driver = subprocess.Popen(command)
    while not written(folder) and driver.poll() is None:
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    before = len(written(folder))
    subprocess.run(command, check=True)
    return before


def check(folder: Path) -> str:
    wanted = []
    for account in range(ACCOUNTS):
        balance = 0
        for payment in range(account, PAYMENTS, ACCOUNTS):
            balance += payment
            wanted.append((account, balance))
    found = written(folder)
    return "nothing lost, nothing twice" if sorted(found) == sorted(wanted) else "WRONG"


def main(what: str = "worker", folder: str = "") -> None:
    if what == "run":
        run(Path(folder))
        return
    with tempfile.TemporaryDirectory() as place:
        if what == "driver":
            before = kill_driver(Path(place))
            print(f"the driver was killed when there were {before} balances")
        else:
            print(f"a worker was killed; restarts: {run(Path(place), kills=True)}")
        print(f"{len(written(Path(place)))} balances: {check(Path(place))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
