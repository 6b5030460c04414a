"""Those who look at a job while it is measured: a page that follows it, Prometheus, flame graphs.

Each is a thread that asks the driver's page server as the real one would; what they get is counted,
so that a figure can say what it was taken with. Law: they end with the block that they look in.
"""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

import click

from headgate.api.job import JobClient
from headgate.base.extras import install_command
from headgate.base.settings import RestSettings
from headgate.observe.web.server import page_server

SCRAPE_S: Final = 1.0
SAMPLE_S: Final = 1.0
PAUSE_S: Final = 0.1
"""Before a look is begun again: the job may just start, or end."""
ANSWER_S: Final = 30.0


@dataclass(slots=True)
class Sightings:
    """What was seen."""

    updates: int = 0
    """Of the page: one a second."""
    scrapes: int = 0
    scrape_bytes: int = 0
    flame_graphs: int = 0
    failures: int = 0
    """Requests that were refused or cut off, once the job was running."""


class Onlookers:
    """Looks at jobs of this process; ``look`` is the block in which it does."""

    def __init__(self, *, flames: bool = False) -> None:
        self.seen = Sightings()
        self._flames = flames
        self._over = threading.Event()
        self._answered: set[str] = set()

    @contextmanager
    def look(self, client: JobClient) -> Iterator[None]:
        page = page_server(RestSettings())
        if page is None:
            raise click.ClickException(f"looking needs the page server: {install_command('ui')}")
        job = quote(client.get_job_id(), safe="")
        self._over = threading.Event()
        looks: list[Callable[[str, str], None]] = [self._follow, self._scrape]
        looks += [self._sample] if self._flames else []
        with ExitStack() as ending:
            for look in looks:
                thread = threading.Thread(target=look, args=(page.url, job), daemon=True)
                thread.start()
                ending.callback(thread.join, ANSWER_S)
            ending.callback(self._over.set)
            yield

    def _follow(self, url: str, job: str) -> None:
        """As the page does."""

        def read(response: http.client.HTTPResponse) -> None:
            while (line := response.readline()) and not self._over.is_set():
                self.seen.updates += line.startswith(b"event: job")

        while not self._over.wait(PAUSE_S):
            self._ask(url, f"/jobs/{job}/events", read)

    def _scrape(self, url: str, job: str) -> None:
        """As Prometheus does, but more often."""

        def read(response: http.client.HTTPResponse) -> None:
            self.seen.scrape_bytes += len(response.read())
            self.seen.scrapes += 1

        while not self._over.is_set():
            self._ask(url, "/metrics", read)
            self._over.wait(SCRAPE_S if self.seen.scrapes else PAUSE_S)

    def _sample(self, url: str, job: str) -> None:
        """Flame graphs of the vertex that does most, one after the other."""

        def read(response: http.client.HTTPResponse) -> None:
            response.read()
            self.seen.flame_graphs += 1

        path = f"/jobs/{job}/vertices/1/flamegraph?seconds={SAMPLE_S:g}"
        while not self._over.wait(PAUSE_S):
            self._ask(url, path, read)

    def _ask(self, url: str, path: str, read: Callable[[http.client.HTTPResponse], None]) -> None:
        where = urlsplit(url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status == 200:
                self._answered.add(path)
                read(response)
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        self.seen.failures += path in self._answered and not self._over.is_set()
