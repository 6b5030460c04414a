"""A driver that runs jobs with planted causes, asks why each is slow, and prints what it is told.

    python -m tests.spark.planted_driver [--rounds N] [--alone] [--apply all] [JOB ...]

Each line of standard output is a JSON object: the job, and its three answers or its rate after the
suggestion was applied. Jobs that only sleep run side by side, those that need cores do not.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from headgate.api.job import JobStatus
from headgate.common import Configuration
from headgate.datastream import StreamExecutionEnvironment
from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.observer import JobObserver
from headgate.spark.job import SparkJob
from headgate.spark.session import find_session
from headgate.spark.submission import on_launched
from tests.spark.planted_jobs import JOBS, SMALL_BUFFERS, PlantedJob, Tasks

SLOTS = 40
ASKED = 3
SAMPLE_S = 1.0
READY_S = 120.0
MEASURE_S = 6.0
SESSION = {"spark.driver.memory": "1g", "spark.ui.enabled": "false"}


class Watched:
    """A running job and its observer."""

    def __init__(self, job: SparkJob) -> None:
        self.job = job
        self.observer = JobObserver(job)

    def wait_for(self, cause_is_known: bool) -> None:
        """Until there is a first answer, or a restart."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and not self.job.has_ended():
            if cause_is_known and self.observer.quick_diagnosis().cause != "unknown":
                return
            restarted = self.job.restarts() and self.job.status() is JobStatus.RUNNING
            if restarted and not cause_is_known:
                return
            time.sleep(0.1)
        why = self.observer.quick_diagnosis().summary
        raise SystemExit(f"{self.job.graph.name}: no answer within {READY_S} s: {why}")

    def ask(self) -> list[Diagnosis]:
        """Several times in a row, as the window moves on."""
        answers = []
        for _ in range(ASKED):
            answers.append(self.observer.diagnose(seconds=SAMPLE_S))
            time.sleep(0.3)
        return answers


@contextmanager
def running(planted: PlantedJob, tasks: Tasks) -> Iterator[Watched]:
    with ExitStack() as last:
        folder = last.enter_context(tempfile.TemporaryDirectory())
        configuration = Configuration()
        for key, text in {**SMALL_BUFFERS, **planted.settings}.items():
            configuration.set_string(key, text.replace("{folder}", folder))
        env = StreamExecutionEnvironment(configuration).set_parallelism(1)
        built = planted.build(env, tasks, folder)
        if built is not None:
            last.callback(built.close)  # type: ignore[attr-defined]
        started: list[SparkJob] = []
        with _launching:
            on_launched.append(started.append)
            try:
                env.execute_async(planted.name)
            finally:
                on_launched.remove(started.append)
        (job,) = started
        last.callback(job.cancel, "the question is answered")
        watched = Watched(job)
        looks = threading.Event()
        looker = threading.Thread(target=_look, args=(watched, looks), daemon=True)
        looker.start()
        last.callback(looker.join)
        last.callback(looks.set)
        yield watched


def _look(watched: Watched, end: threading.Event) -> None:
    while not end.wait(1.0):
        watched.observer.look()


def answers_of(jobs: Sequence[PlantedJob]) -> dict[str, list[Diagnosis]]:
    """Run them side by side and ask each; started one by one, so that hooks see their own."""
    with ExitStack() as last:
        started = {}
        for planted in jobs:
            if planted.cause != "unknown":
                started[planted.name] = last.enter_context(running(planted, {}))
        # Each has run for ten seconds when all answer: no window holds the start of another job.
        all_run = threading.Barrier(max(1, len(started)))
        pool = last.enter_context(ThreadPoolExecutor(len(jobs)))

        def question(planted: PlantedJob) -> tuple[str, list[Diagnosis]]:
            if planted.cause == "unknown":
                with running(planted, {}) as watched:
                    watched.wait_for(cause_is_known=False)
                    answers = watched.ask()
            else:
                watched = started[planted.name]
                watched.wait_for(cause_is_known=True)
                all_run.wait(READY_S)
                answers = watched.ask()
            tell(job=planted.name, answers=[msgspec.to_builtins(answer) for answer in answers])
            return planted.name, answers

        return dict(pool.map(question, jobs))


def apply(planted: PlantedJob, answer: Diagnosis) -> None:
    """Run it with the suggested parallelism, and measure."""
    tasks = {
        name: advice.suggested
        for advice in answer.advice
        for name in advice.name.replace("Source: ", "").replace("Sink: ", "").split(" -> ")
    }
    with running(planted, tasks) as watched:
        watched.wait_for(cause_is_known=True)  # then it has run for ten seconds
        measured = watched.observer.window(MEASURE_S).source_rate
    tell(job=planted.name, tasks=tasks, predicted=answer.advised_rate, measured=measured)


_launching = threading.Lock()  # so that each sees its own job
_printing = threading.Lock()


def tell(**facts: Any) -> None:
    with _printing:
        print(json.dumps(facts), flush=True)


def groups(jobs: Sequence[PlantedJob], alone: bool) -> Iterator[list[PlantedJob]]:
    """Jobs that run at the same time: those that sleep; those of one core; one of all cores."""
    if alone:
        yield from ([planted] for planted in jobs)
        return
    light = [planted for planted in jobs if not planted.needs_cores]
    single = [planted for planted in jobs if planted.needs_cores and planted.cause != "cpu"]
    whole = [planted for planted in jobs if planted.cause == "cpu"]
    yield from (group for group in (light, single, whole) if group)


def run(chosen: Sequence[PlantedJob], alone: bool, applied: str) -> None:
    """One round; a single suggestion is applied while jobs run that need cores and not slots."""
    wanted = [planted for planted in chosen if planted.applied]
    todo = {"none": [], "first": wanted[:1], "all": wanted}[applied]
    answers: dict[str, list[Diagnosis]] = {}
    with ThreadPoolExecutor(1) as beside:
        applying = []
        for group in groups(chosen, alone):
            answers.update(answers_of(group))
            while not alone and todo and todo[0].name in answers:
                planted = todo.pop(0)
                applying.append(beside.submit(apply, planted, answers[planted.name][-1]))
        for planted in todo:
            apply(planted, answers[planted.name][-1])
        for future in applying:
            future.result()


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--apply", choices=["none", "first", "all"], default="first")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("jobs", nargs="*")
    options = parser.parse_args(words)
    chosen = [planted for planted in JOBS if not options.jobs or planted.name in options.jobs]
    session = find_session(SESSION, cores=SLOTS)
    try:
        for _ in range(options.rounds):
            run(chosen, options.alone, options.apply)
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
