"""A driver in a process of its own, for `headgate run`; its last line tells figures of the job.

Arguments: folder, mode, backend, sink, seed.
"""

import json
import sys

from tests.faults.program import Place, Trial, build, environment

if __name__ == "__main__":
    folder, mode, backend, sink, seed = sys.argv[1:]
    trial, place = Trial(mode, backend, sink, int(seed)), Place(folder)
    env = environment(trial, place)
    build(env, trial, place)
    client = env.execute_async(f"driver {trial}")
    client.get_job_execution_result().result()
    print(json.dumps({"restarts": client.get_metrics()["job.restarts"]}))
