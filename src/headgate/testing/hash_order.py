"""A calm run in another process, where sets of texts have another order.

``PYTHONHASHSEED`` is fixed when Python starts, so that no run in this process can show what depends
on it.
"""

import os
import pickle
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from importlib import import_module
from typing import Final

import cloudpickle

from headgate.host.shipping.code import pickled, unpickled
from headgate.testing.outside import pickled_by_value
from headgate.testing.program import Build

TIMEOUT_S: Final = 60.0
_CODE: Final = """
import pickle, sys
path, sys.path[:] = pickle.load(sys.stdin.buffer), []
sys.path += path
from headgate.testing.hash_order import answer
answer()
"""


class OtherProcess:
    """Runs ``build`` calmly with another hash seed, beside this process."""

    def __init__(self, build: Build, parallelism: int, hash_seed: int) -> None:
        self.hash_seed = hash_seed
        self.problem = ""
        """Why there is no result."""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            work = _shipped(build, parallelism)
        except Exception as error:
            self.problem = f"build cannot be pickled: {type(error).__name__}: {error}"
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(pickle.dumps(sys.path) + work)
            self._process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        """Whether ``texts`` need not wait."""
        return self._process is None or self._process.poll() is not None

    def texts(self) -> "dict[str, Counter[str]] | None":
        """The outputs of the run by name; None: there are none, and ``problem`` says why."""
        if self._process is None:
            return None
        data, noise = self._process.communicate(timeout=TIMEOUT_S)
        if self._process.returncode:
            lines = noise.decode(errors="replace").strip().splitlines()
            self.problem = lines[-1] if lines else f"it ended with {self._process.returncode}"
            return None
        found: dict[str, Counter[str]] = pickle.loads(data)
        return found

    def close(self) -> None:
        """End the process, if it runs; idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _shipped(build: Build, parallelism: int) -> bytes:
    module = sys.modules.get(getattr(build, "__module__", "") or "")
    by_value = module is not None and module.__name__ != "__main__"
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        with pickled_by_value():
            return pickled((build, parallelism))
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)


def answer() -> None:
    """In the other process: run it, and write what came of it."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the program prints is no answer
    build, parallelism = unpickled(sys.stdin.buffer)
    texts = import_module("headgate.testing.simulation").calm_texts(build, parallelism)
    out.write(pickle.dumps(texts))
    out.close()
