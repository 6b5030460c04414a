"""The driver of a soak: the program of the faults with settings of a job that runs for long.

Arguments: the folder, then the fields of the trial.
"""

import json
import os
import sys

from tests.faults.program import Place, Trial, build, environment

SETTINGS = {
    "execution.checkpointing.interval": "1000",
    "restart-strategy.fixed-delay.attempts": "1000000",
}

if __name__ == "__main__":
    trial, place = Trial.parse(sys.argv[2:]), Place(sys.argv[1])
    # Whoever is killed does not tidy up; what it leaves must not grow.
    local = {"state.backend.rocksdb.localdir": os.environ["TMPDIR"]}
    env = environment(trial, place, **SETTINGS, **local)
    build(env, trial, place)
    client = env.execute_async(f"soak {trial}")
    client.get_job_execution_result().result()
    print(json.dumps({"restarts": client.get_metrics()["job.restarts"]}))
