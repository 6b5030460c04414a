"""A server with a lively job that exists only as figures, to work on the page or a command:

    python -m tests.observe.web.demo --port 8099 --scenario backpressure

Scenarios: `backpressure` has five vertices, the third of which holds up the others, `calm` is the
same without trouble, `wide` has 1,000 subtasks, `failing` restarts every 20 seconds, `ended` has
finished. The page's files are read anew for each request.
"""

import argparse
import time

from headgate.api.job import JobStatus
from headgate.base.settings import RestSettings
from headgate.observe.web.server import PageServer
from tests.observe.web.kit import (
    CALM,
    HELD_UP,
    ScriptedJob,
    a_failure,
    five_vertices,
    now_ms,
    some_checkpoints,
    some_lines,
)

SCENARIOS = ("backpressure", "calm", "wide", "failing", "ended")


def scripted(scenario: str) -> ScriptedJob:
    graph = five_vertices(250 if scenario == "wide" else 2)
    return ScriptedJob(
        graph,
        list(CALM if scenario == "calm" else HELD_UP),
        job_id=f"demo-{scenario}",
        clock=lambda: time.monotonic(),
        checkpoint_records=some_checkpoints(),
        lines=some_lines(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--scenario", choices=SCENARIOS, default="backpressure")
    parser.add_argument("--token", default="", help="asked for, if given")
    arguments = parser.parse_args()
    job = scripted(arguments.scenario)
    job.age(60.0)
    server = PageServer(RestSettings(port=arguments.port, token=arguments.token))
    print(server.show(job), flush=True)
    if arguments.scenario == "ended":
        job.end(JobStatus.FINISHED)
    try:
        while True:
            time.sleep(20)
            if arguments.scenario == "failing":
                job.fail_once(a_failure(now_ms(), job.restarts()))
    except KeyboardInterrupt:
        server.close()


if __name__ == "__main__":
    main()
