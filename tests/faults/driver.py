"""A driver in a process of its own, for `headgate run`; its last line tells figures of the job.

Arguments: the folder, then the fields of the trial.
"""

import json
import sys

from tests.faults.program import Place, Trial, build, environment

if __name__ == "__main__":
    trial, place = Trial.parse(sys.argv[2:]), Place(sys.argv[1])
    env = environment(trial, place)
    build(env, trial, place)
    client = env.execute_async(f"driver {trial}")
    client.get_job_execution_result().result()
    print(json.dumps({"restarts": client.get_metrics()["job.restarts"]}))
