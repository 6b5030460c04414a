"""Every recipe runs as its page shows it, on Spark and against real servers, and is short.

A block of JSON is the program's input, a file or a topic; one with the title ``posted`` is what the
webhook gets.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from tests.spark.pages import ROOT, check_page

pytest.importorskip("confluent_kafka")
pytest.importorskip("redis")

from confluent_kafka import Producer

from tests.connectors.http.kit import Endpoint
from tests.connectors.kafka.broker_kit import StrictBroker, create_topic
from tests.connectors.redis.kit import RedisServerProcess

RECIPES = sorted(set((ROOT / "docs/recipes").glob("*.md")) - {ROOT / "docs/recipes/README.md"})
TESTS = "a-jobs-own-tests"
TITLED = re.compile(r'^```\w+ title="(.+?)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LINES = 40


class Services(BaseHTTPRequestHandler):
    """Customers by number, and scores of texts: each is busy the first time."""

    protocol_version = "HTTP/1.1"
    customers: ClassVar = {
        "7": {"name": "Ada", "country": "uk"},
        "8": {"name": "Bob", "country": "us"},
    }
    asked: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        found = self.customers.get(self.path.rpartition("/")[2])
        if self.is_first():
            self.answer(503, None)
        else:
            self.answer(200 if found else 404, found)

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.is_first():
            self.answer(429, None)
        elif "" in texts:
            self.answer(422, None)
        else:
            self.answer(200, [("good" in text) - ("sad" in text) for text in texts])

    def is_first(self) -> bool:
        known = self.path in self.asked
        self.asked.add(self.path)
        return not known

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        pass


@pytest.fixture(scope="module")
def services() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Services)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = StrictBroker(tmp_path_factory.mktemp("kafka"))
    broker.server.start()
    create_topic(broker.address, "alerts")
    yield broker.address
    broker.server.stop()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RedisServerProcess(tmp_path_factory.mktemp("redis"))
    server.process.start()
    yield server.url
    server.process.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "recipe", [it for it in RECIPES if it.stem != TESTS], ids=lambda it: it.stem
)
def test_a_recipe_prints_what_it_shows(
    recipe: Path,
    program: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    text = recipe.read_text(encoding="utf-8")
    serve: dict[str, Callable[[], str]] = {
        "KAFKA": lambda: request.getfixturevalue("kafka"),
        "REDIS": lambda: request.getfixturevalue("redis_server"),
        "CUSTOMERS": lambda: request.getfixturevalue("services") + "/customers",
        "MODEL": lambda: request.getfixturevalue("services") + "/scores",
    }
    for name in serve:
        if f'os.environ.get("{name}"' in text:
            monkeypatch.setenv(name, serve[name]())
    webhook = Endpoint()
    monkeypatch.setenv("WEBHOOK", webhook.url)
    posted = ""
    for title, content in TITLED.findall(text):
        if title == "posted":
            posted = content
        elif title.startswith("topic "):
            fill_topic(request.getfixturevalue("kafka"), title.removeprefix("topic "), content)
        else:
            Path(title).parent.mkdir(exist_ok=True)
            Path(title).write_text(content, encoding="utf-8")
    try:
        check_page(program, str(recipe.relative_to(ROOT)))
        assert sorted(webhook.lines()) == sorted(posted.splitlines())
    finally:
        webhook.close()


def fill_topic(address: str, topic: str, content: str) -> None:
    """A record for each line; its time is that of the field ``at``, in seconds."""
    create_topic(address, topic)
    producer = Producer({"bootstrap.servers": address})
    for line in content.splitlines():
        at = re.search(r'"at": (\d+)', line)
        producer.produce(topic, line, timestamp=int(at[1]) * 1000 if at else 0)
    producer.flush()


@pytest.mark.timeout(330)
def test_the_recipe_for_tests_passes_its_tests(tmp_path: Path) -> None:
    text = (ROOT / f"docs/recipes/{TESTS}.md").read_text(encoding="utf-8")
    for title, content in TITLED.findall(text):
        (tmp_path / title).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_spending.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    (shown,) = re.findall(r"^```text\n(.*)\n```$", text, flags=re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith(f"{shown} in"), done.stdout


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda it: it.stem)
def test_a_recipe_is_short_and_says_what_happens_at_a_failure(recipe: Path) -> None:
    text = recipe.read_text(encoding="utf-8")
    programs = re.findall(
        r"^## (?:The program|Its tests)\n.*?```python.*?\n(.*?)```", text, re.M | re.S
    )
    assert programs
    for code in programs:
        assert len([line for line in code.splitlines() if line.strip()]) <= LINES
    assert "\n## When it fails\n\n| what happens |" in text
    assert [len(line) for line in text.splitlines() if len(line) > 100 and line[0] != "|"] == []
