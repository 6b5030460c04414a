"""Drivers in processes of their own, started as users do: `headgate run`."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.program import Place, Trial
from tests.spark.cluster import until

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "tests" / "faults" / "driver.py"
PATHS = f"{ROOT}:{ROOT / 'src'}"
JOB = "faulty"
STEP_S = 90.0
SPARK = ("spark.driver.memory=512m", "spark.executor.memory=512m", "spark.ui.enabled=false")


class Driver:
    """One of a job; all that come from it wear a mark. Leaving the block ends every process."""

    def __init__(
        self,
        trial: Trial,
        place: Place,
        master: str,
        environ: Mapping[str, str],
        program: Path = PROGRAM,
    ) -> None:
        self.place = place
        mark = str(uuid.uuid4())
        self._mark = f"HEADGATE_TEST={mark}".encode()
        self.log = Path(place.folder, f"driver-{mark}.log")
        flags = [word for setting in SPARK for word in ("-D", setting)]
        words = [place.folder, *map(str, astuple(trial))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headgate", "run", str(program)),
                    *("--job-id", JOB, "--master", master, "--log-level", "info", "--no-progress"),
                    *(*flags, "--", *words),
                ],
                env={**environ, "HEADGATE_TEST": mark, "PYTHONPATH": PATHS},
                cwd=place.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> "Driver":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        if error is not None:
            print(self.log.read_text())

    def end(self) -> None:
        """Kill every process that is left."""
        for pid in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process.returncode is None:
            self.process.communicate()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something to happen before the driver ends."""

        def is_over() -> bool:
            return condition() or self.process.poll() is not None

        assert until(is_over, STEP_S), f"not within {STEP_S} s: {what}"
        assert condition(), f"the driver has ended before {what}"

    def await_checkpoints(self, count: int) -> int:
        """Until so many more are complete than there are now; returns the number of the last."""
        before = newest_checkpoint(self.place)
        self.until(lambda: newest_checkpoint(self.place) >= before + count, "a checkpoint")
        return newest_checkpoint(self.place)

    def finish(self) -> dict[str, Any]:
        """Let the job hurry; what the driver tells at its end."""
        self.place.hurry()
        output, _ = self.process.communicate(timeout=STEP_S)
        assert self.process.returncode == 0, f"the driver has failed: {output}"
        return dict(json.loads(output.splitlines()[-1]))

    def went_on_from(self) -> list[int]:
        """Numbers of checkpoints, as the log has them."""
        text = self.log.read_text()
        return [
            int(number) for number in re.findall(r"job \S+ goes on from checkpoint (\d+)", text)
        ]

    def family(self) -> list[int]:
        """Every process with the mark: the driver, its JVM, its workers."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._mark in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found


def newest_checkpoint(place: Place) -> int:
    """The number of the newest one that is complete; 0: there is none."""
    found = (place.storage / JOB).glob("chk-*/_metadata")
    return max((int(path.parent.name.removeprefix("chk-")) for path in found), default=0)
