"""Streaming queries of tests: files that come one by one, and rows counted by micro-batch."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 200.0
SCHEMA = "id long, price double"
SLOW = ("failed to connect back", "CANNOT_OPEN_SOCKET")
"""What Spark says if a busy machine starts its Python too slowly; a restart is the remedy."""


class Files:
    """A folder of JSON lines that a query follows, one file for each micro-batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.count = 0

    def add(self, *ids: int) -> None:
        lines = [json.dumps({"id": number, "price": number / 2}) + "\n" for number in ids]
        self.count += 1
        hidden = self.folder / f".{self.count}"
        hidden.write_text("".join(lines))
        os.rename(hidden, self.folder / f"{self.count}.json")

    def frame(self, spark: Any) -> Any:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


class Query:
    """A streaming query that is started, stopped and started again from its checkpoint."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self.query = start()

    def stop(self) -> None:
        self.query.stop()

    def restart(self) -> None:
        self.query.stop()
        self.query = self._start()

    def check(self) -> None:
        """Raises what has ended it, unless that is a machine that is too busy."""
        error = self.query.exception()
        if error is not None and any(text in str(error) for text in SLOW):
            self.query = self._start()
        elif error is not None:
            raise AssertionError(str(error))

    def error(self) -> str:
        """Waits for its failure."""
        until(lambda: self.query.exception() is not None, "the query fails")
        return str(self.query.exception())


class Taken:
    """A sink of a query: the rows of each micro-batch; one that is repeated counts once."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: Any, number: int) -> None:
        self.batches[number] = [row.id for row in frame.collect()]

    @property
    def ids(self) -> list[int]:
        return sorted(number for ids in list(self.batches.values()) for number in ids)


def until(is_so: Callable[[], bool], what: str, *queries: Query) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not is_so():
        for query in queries:
            query.check()
        assert time.monotonic() < give_up, f"never: {what}"
        time.sleep(0.1)
