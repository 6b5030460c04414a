"""A worker process for tests: `python -m tests.host.worker`.

It reads lines from its input, each a pickled (contact, slot, may_exit) in hex, serves each with
``run_task_manager``, and prints a line of JSON: how that ended, and what is left of it.
"""

import gc
import json
import logging
import pickle
import sys

from headgate.host.worker.task_manager import run_task_manager
from tests.host.leaks import descriptors, own_threads


def main() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for line in sys.stdin:
        contact, slot, may_exit = pickle.loads(bytes.fromhex(line))
        before = descriptors()
        report: dict[str, object] = {"error": None, "message": ""}
        try:
            run_task_manager(contact, slot, may_exit=may_exit)
        except Exception as error:
            report = {"error": type(error).__name__, "message": str(error)}
        gc.collect()
        left = [path for number, path in descriptors().items() if before.get(number) != path]
        print(json.dumps({**report, "left": left, "threads": own_threads()}), flush=True)


if __name__ == "__main__":
    main()
