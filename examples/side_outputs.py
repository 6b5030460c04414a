"""Sorts what comes in: good lines go on, broken and slow ones leave by side outputs."""

from collections.abc import Iterator
from typing import Any

from headgate import OutputTag, ProcessFunction, StreamExecutionEnvironment

LOG = [
    "/index 200 12",
    "/search 200 950",
    "what is this",
    "/index 404 8",
    "/cart 200 1800",
    "",
]
BROKEN = OutputTag("broken")
SLOW = OutputTag("slow")


class Parse(ProcessFunction):
    """Yields requests; ``(tag, value)`` goes to the side output of that tag."""

    def process_element(self, line: str, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            path, status, took_ms = line.split(" ")
            request = path, int(status), int(took_ms)
        except ValueError:
            yield BROKEN, line
            return
        if request[2] > 500:
            yield SLOW, f"{path} took {took_ms} ms"
        yield request


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    requests = env.from_collection(LOG).process(Parse()).name("parse")

    requests.map(lambda request: (request[0], 1)).key_by(lambda pair: pair[0]).sum(1).print("count")
    requests.get_side_output(SLOW).print("slow")
    requests.get_side_output(BROKEN).map(repr).print("broken")
    env.execute("side outputs")


if __name__ == "__main__":
    main()
