"""Calls to a model: texts are scored by a server that takes many at once, but not often.

The server takes at most 20 requests a second and refuses more by 429 and Retry-After. The job sends
batches within that limit, asks for each text once, and puts aside the text that the model cannot
take, without losing those that were sent with it.
"""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from headgate import (
    AsyncDataStream,
    BatchAsyncFunction,
    Batching,
    CallCache,
    ErrorPolicy,
    OutputTag,
    RateLimit,
    RateLimited,
    StreamExecutionEnvironment,
    Time,
)

REJECTED = OutputTag("rejected")
MOST = 20
"""Requests that the server takes in a second."""
GOOD, BAD = {"fine", "good", "great"}, {"bad", "poor", "sad"}
TEXTS = ["a good day", "bad weather", "a great and good book", "!", "a sad end", "a good day"] * 50


class Model(BaseHTTPRequestHandler):
    """Stands for a model server: a list of texts in, a list of scores out."""

    requests: ClassVar[list[float]] = []

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        now = time.monotonic()
        self.requests[:] = [at for at in self.requests if at > now - 1] + [now]
        if len(self.requests) > MOST:
            self.send_response(429)
            self.send_header("Retry-After", "1")
            self.end_headers()
            return
        words = [text.split() for text in texts]
        if ["!"] in words:
            self.send_error(422, "a text has no words")
            return
        scores = [len(GOOD.intersection(some)) - len(BAD.intersection(some)) for some in words]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(scores).encode())

    def log_message(self, format: str, *values: object) -> None:
        """The example prints only its results."""


class Score(BatchAsyncFunction):
    """A batch of texts is one request. urllib blocks, so that it runs in another thread."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def async_invoke_batch(self, values: list[str]) -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        scores = await loop.run_in_executor(None, self.request, values)
        return list(zip(values, scores, strict=True))

    def cost(self, value: str) -> int:
        """About the tokens of a text."""
        return len(value) // 4 + 1

    def request(self, texts: list[str]) -> list[int]:
        try:
            body = json.dumps(texts).encode()
            with urllib.request.urlopen(self.url, body, timeout=10) as response:
                scores: list[int] = json.load(response)
                return scores
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 429:
                    raise RateLimited(error.headers.get("Retry-After")) from error
                raise ValueError(error.reason) from error


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    scored = AsyncDataStream.ordered_wait_batch(
        env.from_collection(TEXTS),
        Score(f"http://127.0.0.1:{server.server_port}"),
        Time.seconds(30),
        Batching(max_records=32, max_wait=Time.milliseconds(50), max_cost=200),
        rate_limit=RateLimit(requests_per_second=MOST - 2, cost_per_second=100_000),
        cache=CallCache(Time.minutes(10)),
    )
    scored.name("score").on_error(ErrorPolicy.dead_letters(REJECTED))
    rejected = scored.get_side_output(REJECTED).map(
        lambda letter: (f"{letter.record} was rejected: {letter.reason}", 0)
    )
    counts: dict[tuple[str, int], int] = {}
    with scored.union(rejected).execute_and_collect("model calls") as results:
        for result in results:
            counts[result] = counts.get(result, 0) + 1
    server.shutdown()
    server.server_close()
    for (text, score), count in sorted(counts.items()):
        print(f"{count:3} times {score:+d} {text}")


if __name__ == "__main__":
    main()
