"""A source and a sink of one's own: measurements of weather stations into an SQLite database.

A source says into which splits it is cut; each split is read by one task. A sink makes a writer in
each of its tasks. Both descriptions travel to the workers, so they hold names, and no open files.
"""

import math
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

from headgate import Sink, SinkWriter, Source, SplitReader, StreamExecutionEnvironment

HOURS = 24

Measurement: TypeAlias = tuple[str, int, float]
"""Station, hour and degrees."""


class Stations(Source[Measurement]):
    """One measurement for each hour of a day, from each station."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def splits(self, parallelism: int) -> list[str]:
        return list(self.names)

    def open(self, split: Any, position: Any, context: object) -> "StationReader":
        return StationReader(split, position or 0)


class StationReader(SplitReader[Measurement]):
    """Never waits: ``poll`` gives what is there, an empty list for now, None at the end."""

    def __init__(self, name: str, hour: int) -> None:
        self.name, self.hour = name, hour

    def poll(self, limit: int) -> list[Measurement] | None:
        if self.hour == HOURS:
            return None
        hours = range(self.hour, min(self.hour + limit, HOURS))
        self.hour = hours.stop
        return [(self.name, hour, self.measure(hour)) for hour in hours]

    def position(self) -> int:
        return self.hour

    def measure(self, hour: int) -> float:
        return len(self.name) + 5 * math.sin(math.pi * (hour - 6) / 12)


class Database(Sink[Measurement]):
    def __init__(self, path: str) -> None:
        self.path = path

    def create_writer(self, context: object) -> "DatabaseWriter":
        return DatabaseWriter(self.path)


class DatabaseWriter(SinkWriter[Measurement]):
    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE measured (station TEXT, hour INT, degrees REAL)")

    def write(self, records: list[Measurement]) -> None:
        self.database.executemany("INSERT INTO measured VALUES (?, ?, ?)", records)

    def flush(self) -> None:
        self.database.commit()

    def close(self) -> None:
        self.database.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "weather.db"))
        env = StreamExecutionEnvironment.get_execution_environment()
        stations = env.from_source(Stations("harbour", "hill"), None, "stations").set_parallelism(2)
        stations.sink_to(Database(path)).name("database").set_parallelism(1)
        env.execute("weather")

        with sqlite3.connect(path) as database:
            query = "SELECT station, count(*), max(degrees) FROM measured GROUP BY station"
            for station, count, warmest in sorted(database.execute(query)):
                print(f"{station}: {count} measurements, {warmest:.1f} degrees at most")
        database.close()


if __name__ == "__main__":
    main()
