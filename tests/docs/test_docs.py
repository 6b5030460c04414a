"""The documents are true: examples run, links lead somewhere, tables and vectors are current."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from benchmarks.commands import bench
from headgate.base.checkpoints import CheckpointKind, Stop
from headgate.base.elements import (
    Bundle,
    Element,
    LatencyMarker,
    PickleSerializer,
    StreamStatus,
    Watermark,
    encode_element,
)
from headgate.base.events import (
    END_OF_PARTITION,
    END_OF_SUPERSTEP,
    CancelMarker,
    CheckpointBarrier,
    Event,
    encode_event,
)
from headgate.base.fields import RecordFields, Same
from headgate.base.ids import PeerName
from headgate.base.messages import Heartbeat
from headgate.base.settings import Compression, FlowControl, describe_settings
from headgate.cli.commands import command
from headgate.control.frames import FrameWriter
from headgate.control.frames import encode as control_frame
from headgate.control.proof import DriverProof, WorkerProof
from headgate.core.exchange.frames import BODY_LIMITS, Kind, LinkChallenge, LinkProof, encode
from headgate.core.exchange.handshake import Handshake
from tests.core.exchange.vectors import BUFFER_VECTORS, SAVEPOINT, VECTORS
from tests.mutants.page import page as mutants_page

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BENCHMARKS = "docs/benchmarks.md"
FIRST = "examples/first_program.py"
FIRST_SCREEN = 65  # lines of the source
EXAMPLE = "examples/two_task_managers.py"
SOURCE = ROOT / "src/headgate"
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
ROWS = list(range(1, 176))
HEX_LINE = 96


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


# The examples. What needs Spark runs in tests/spark.


def test_readme_shows_the_first_program_as_it_is() -> None:
    assert f"```python\n{text_of(FIRST)}```\n" in text_of("README.md")


def test_first_program_is_short() -> None:
    assert len(text_of(FIRST).splitlines()) <= 10


def test_readme_and_package_say_the_same_in_one_sentence() -> None:
    (sentence,) = re.findall(r'^description = "(.+)"$', text_of("pyproject.toml"), flags=re.M)
    assert text_of("README.md").startswith(f"# Headgate\n\n**{sentence}.**\n")


def test_readme_leads_from_the_picture_to_the_output_on_its_first_screen() -> None:
    screen = "\n".join(text_of("README.md").splitlines()[:FIRST_SCREEN])
    parts = ("![", "\n- **", "## Install", "```python", "```text", "('question', 1)")
    places = [screen.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_readme_has_two_commands_that_set_up_what_is_missing_and_says_how_long_they_take() -> None:
    _, _, install = text_of("README.md").partition("## Install")
    before, block, _ = install.split("```", 2)
    lines = dict(re.findall(r"^make (\w+) +# (.+)$", block, flags=re.MULTILINE))
    assert list(lines) == ["run", "test"]
    assert all(re.search(r"\d+ (?:seconds|minutes)", text) for text in (before, *lines.values()))
    for target in lines:
        assert re.search(rf"^{target}:.* \$\(READY\)", text_of("Makefile"), flags=re.MULTILINE)


def test_readme_shows_figures_of_the_benchmarks() -> None:
    row = r"^\| (.+?) \| .+ \| (`python -m benchmarks .+?`) \|$"
    figures = re.findall(row, text_of("README.md"), flags=re.MULTILINE)
    assert len(figures) == 4
    for figure, name in figures:
        (measured,) = re.findall(rf"^\| {name} \| (.+)$", text_of(BENCHMARKS), flags=re.MULTILINE)
        missing = [part for part in re.findall(r"[\d.]+", figure) if part not in measured]
        assert not missing, f"{name} in {BENCHMARKS} has other figures than the README"


def test_every_benchmark_has_its_figure() -> None:
    row = r"^\| `python -m benchmarks ([a-z-]+)` \|"
    shown = set(re.findall(row, text_of(BENCHMARKS), flags=re.MULTILINE))
    assert shown == set(bench.commands)


def test_example_without_spark_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert str(sum(range(1_000_000))) in done.stdout


# Links, targets, commands, modules.


def test_documents_install_what_a_clone_has() -> None:
    """No index of packages has Headgate yet; ``base/extras.py`` says it to users."""
    (extras,) = re.findall(
        r"^\[project\.optional-dependencies\]\n(.*?)^\[", text_of("pyproject.toml"), re.M | re.S
    )
    known = re.findall(r"^(\w+) = ", extras, flags=re.MULTILINE)
    for document in DOCUMENTS:
        for words in re.findall(r"pip\s+install\s+([^`\n]+)", document.read_text("utf-8")):
            assert not words.lstrip("'").startswith("headgate"), document.name
            named = re.findall(r"'\.\[([\w,]+)\]'", words)
            assert set(",".join(named).split(",")) - {""} <= set(known), (document.name, words)
    said = [path for path in SOURCE.rglob("*.py") if "headgate[" in path.read_text("utf-8")]
    assert not said, "install_command() says how to install an extra"


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        prose = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if "://" not in target:
                yield document, target


def anchors(document: Path) -> list[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return [heading.replace(" ", "-") for heading in plain]


def test_links_lead_somewhere() -> None:
    broken = []
    for document, target in links():
        path, _, anchor = target.partition("#")
        found = (document.parent / path) if path else document
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert not broken


def test_the_page_on_writing_a_connector_shows_code_that_is_there() -> None:
    code = "".join(p.read_text() for p in (ROOT / "src/headgate/connectors/mqtt").glob("*.py"))
    page = text_of("docs/connectors/how-to-write-a-connector.md")
    blocks = re.findall(r"^```(?:python|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 4
    for block in blocks:
        assert block in code, block


def test_make_targets_exist() -> None:
    known = set(re.findall(r"^([a-z]+):", text_of("Makefile"), flags=re.MULTILINE))
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"(?:`|^)make ([a-z]+)", document.read_text("utf-8"), flags=re.M)
    }
    assert {"run", "test"} <= named <= known


COMMANDS: dict[str, click.Group] = {"headgate": command, "python -m benchmarks": bench}


def commands() -> Iterator[str]:
    names = "|".join(COMMANDS)
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")  # a command on some lines
        text = re.sub(r"(?:\S*python3? )?-m headgate ", "headgate ", text.replace(".venv/bin/", ""))
        yield from re.findall(rf"`((?:{names}) [a-z][^`]*)`", text)
        yield from re.findall(rf"^((?:{names}) [a-z][^#\n]*)", text, flags=re.M)  # in a block


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_command_exists(line: str) -> None:
    (program,) = (name for name in COMMANDS if line.startswith(f"{name} "))
    found: click.Command = COMMANDS[program]
    words = shlex.split(line.removeprefix(program).partition(" -- ")[0])  # the rest: the program's
    while words and isinstance(found, click.Group):
        name = words.pop(0)
        assert name in found.commands, f"there is no `{line}`"
        found = found.commands[name]
    known = [option for parameter in found.params for option in parameter.opts]
    assert [word for word in words if word.startswith("-") and word not in known] == []


def test_every_command_and_option_of_run_is_in_the_reference() -> None:
    page = text_of("docs/command-line.md")
    shown = set(re.findall(r"^\| `headgate ([a-z]+)[^|]*` \|", page, flags=re.MULTILINE))
    assert shown == set(command.commands)
    options = {name for option in command.commands["run"].params for name in option.opts}
    missing = [name for name in options if name.startswith("-") and f"`{name} " not in page]
    assert [name for name in missing if f"`{name}`" not in page] == []


def test_documents_name_only_modules_that_exist() -> None:
    missing = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        named = re.findall(r"`((?:src|benchmarks|tests|docs|examples)/[\w./]+)`", text)
        missing += [f"{document.name}: {path}" for path in named if not (ROOT / path).exists()]
        rooms = re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./]+)`", text)
        missing += [f"{document.name}: {path}" for path in rooms if not (SOURCE / path).exists()]
    assert not missing


def test_rooms_are_drawn_as_the_import_contract_has_them() -> None:
    contracts = re.findall(
        r'^containers = \["headgate\.?(\w*)"\]\nlayers = \[\n(.*?)^\]',
        text_of("pyproject.toml"),
        flags=re.M | re.S,
    )
    assert [room for room, _ in contracts] == ["", "core", "host", "connectors"]
    for document in ("docs/architecture.md", "CONTRIBUTING.md"):
        for room, layers in contracts:
            drawn = " > ".join(re.findall(r'"([^"]+)"', layers))
            assert f"\n{f'{room}: ' if room else ''}{drawn}\n" in text_of(document)


def test_every_document_is_listed_in_the_table_of_contents() -> None:
    contents = ROOT / "docs/README.md"
    linked = re.findall(r"^\| \[[^\]]+\]\(([^)#]+)\)", contents.read_text("utf-8"), flags=re.M)
    listed = {(contents.parent / target).resolve() for target in linked}
    own_front = {ROOT / "README.md", contents}
    for folder in ("design", "recipes"):  # their front pages list them
        front = ROOT / "docs" / folder / "README.md"
        pages = set(front.parent.glob("*.md")) - {front}
        linked = re.findall(r"^\| \[[^\]]+\]\(([^)#]+)\)", front.read_text("utf-8"), flags=re.M)
        assert {page.name for page in pages} <= set(linked)
        own_front |= pages
    assert set(DOCUMENTS) - own_front == listed


def test_table_of_contents_calls_documents_by_their_titles() -> None:
    rows = re.findall(r"^\| \[([^\]]+)\]\(([^)#]+)\)", text_of("docs/README.md"), flags=re.M)
    for title, target in rows:
        heading = (ROOT / "docs" / target).read_text("utf-8").splitlines()[0]
        assert heading.removeprefix("# ").split(":")[0] == title, target


def test_every_decision_is_listed_and_has_its_form() -> None:
    listed = text_of("docs/design/README.md")
    records = sorted(path.name for path in (ROOT / "docs/design").glob("0*.md"))
    assert len({name[:4] for name in records}) == len(records)
    for name in records:
        text = text_of(f"docs/design/{name}")
        assert f"]({name})" in listed
        assert text.startswith(f"# {name[:4]}: ")
        assert all(f"\n## {part}\n" in text for part in ("Need", "Choice", "Price")), name
        assert text.splitlines()[2].startswith("Superseded") == ("\nSuperseded" in text), name


def test_every_decision_is_found_by_a_question() -> None:
    rows = re.findall(r"^\| \[\d{4}\].*$", text_of("docs/design/README.md"), flags=re.MULTILINE)
    assert len(rows) == len(list((ROOT / "docs/design").glob("0*.md")))
    assert [row for row in rows if not re.search(r"\) \| [A-Z][^|]+\? \| [^|]+ \|$", row)] == []


def test_glossary_is_in_order_and_has_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", text_of("docs/glossary.md"), flags=re.MULTILINE)[1:]
    words = [re.sub(r"[^a-z ]", "", row.lower()) for row in rows]
    assert words == sorted(set(words))


# The settings.


def test_settings_table_is_current() -> None:
    generator = runpy.run_path(str(ROOT / "docs/generate_configuration.py"))
    page = text_of("docs/configuration.md")
    assert generator["page"](page) == page, "run python docs/generate_configuration.py"
    assert all(f"| `{key}` |" in page for key, _, _ in describe_settings())


# The metrics.


def test_tables_of_metrics_are_current() -> None:
    generator = runpy.run_path(str(ROOT / "docs/generate_metrics.py"))
    page = text_of("docs/metrics.md")
    assert generator["page"](page) == page, "run python docs/generate_metrics.py"


def test_types_of_the_page_are_those_of_the_api() -> None:
    generator = runpy.run_path(str(ROOT / "docs/generate_api_types.py"))
    current = generator["PATH"].read_text(encoding="utf-8")
    assert generator["page"]() == current, "run python docs/generate_api_types.py"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(("what", "first"), [("config", "scrape_configs:"), ("rules", "groups:")])
def test_prometheus_takes_the_example(what: str, first: str, tmp_path: Path) -> None:
    (block,) = re.findall(rf"^```yaml\n({first}.*?)^```", text_of("docs/metrics.md"), re.M | re.S)
    (tmp_path / "example.yml").write_text(block, encoding="utf-8")
    checked = subprocess.run(
        ["promtool", "check", what, str(tmp_path / "example.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_questions_and_alerts_ask_for_metrics_that_exist() -> None:
    before, _, tables = text_of("docs/metrics.md").partition("## All metrics")
    asked = set(re.findall(r"\bheadgate_(?!user)\w+", before))
    known = set(re.findall(r"^\| `(headgate_\w+)`", tables, flags=re.MULTILINE))
    assert len(asked) > 10
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= known


# The planted bugs.


def test_table_of_mutants_is_current() -> None:
    text = text_of("docs/mutants.md")
    assert mutants_page(text) == text, "run python -m tests.mutants.page"


# The wire.


def vectors() -> dict[str, str]:
    """Every vector, as the document shows it: a description, and the frame in hex."""
    found = {_describe(message): frame for message, frame in VECTORS}
    for (receiver, sequence, backlog, flags), payload, frame in BUFFER_VECTORS:
        head = f"receiver={receiver} sequence={sequence} backlog={backlog} flags={flags}"
        found[f"Buffer {head} payload={payload.hex() or 'none'}"] = frame
    return found


def _describe(message: msgspec.Struct) -> str:
    values = [(name, getattr(message, name)) for name in message.__struct_fields__]
    kind = type(message).__name__.removeprefix("Link").replace("CancelReceiver", "Cancel")
    return " ".join([kind, *(f"{name}={_value(it)}" for name, it in values)])


def _value(value: object) -> str:
    match value:
        case None:
            return "none"
        case bytes():
            return value.hex() or "none"
        case CheckpointKind() | Stop():
            return value.name.lower()
        case str():
            return f'"{value}"'
        case tuple():
            return "+".join(f"{receiver}:{credit}" for receiver, credit in value)
        case _:
            return str(int(value))  # type: ignore[call-overload]


def blocks(heading: str) -> dict[str, str]:
    """What the fenced block under a heading says: descriptions, each with hex lines below it."""
    section = text_of("docs/protocol.md").split(f"\n{heading}\n")[1]
    block = section.split("```")[1].removeprefix("text\n")
    found: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith("  "):
            found[name] += line.strip()
        elif line:
            name = line
            found[name] = ""
    return found


def as_block(pairs: dict[str, str]) -> str:
    lines = []
    for name, frame in pairs.items():
        lines.append(name)
        lines += [f"  {frame[at : at + HEX_LINE]}" for at in range(0, len(frame), HEX_LINE)]
    return "\n".join(lines)


def test_vectors_of_messages_are_the_tested_ones() -> None:
    assert blocks("### Frames") == vectors(), f"it should read\n{as_block(vectors())}"
    for message, frame in VECTORS:
        assert encode(message).hex() == frame


def test_every_message_type_has_its_section_and_a_vector() -> None:
    page = text_of("docs/protocol.md")
    for kind in Kind:
        assert f"### {kind.name} ({int(kind)})" in page
    assert {bytes.fromhex(frame)[7] for frame in blocks("### Frames").values()} == {*map(int, Kind)}


EVENTS: list[Event] = [
    END_OF_PARTITION,
    END_OF_SUPERSTEP,
    CheckpointBarrier(7, 1_700_000_000_000, unaligned=True),
    SAVEPOINT,
    CancelMarker(7),
]
ELEMENTS: list[Element] = [
    Watermark(1_700_000_000_000),
    Watermark(-1),
    StreamStatus(False),
    StreamStatus(False, together=True, awaits_splits=True),
    LatencyMarker(1_700_000_000_000, 3, 1),
]


def test_vectors_of_elements_and_events_are_true() -> None:
    expected = {_describe(event): encode_event(event).hex() for event in EVENTS}
    for element in ELEMENTS:
        prefix, body = encode_element(element, PickleSerializer())
        expected[_describe(element)] = (prefix + bytes(body)).hex()
    apart = Bundle.of_fields(RecordFields([["a", "b"], Same(1)], 2))
    title = 'Bundle of ("a", 1) and ("b", 1), taken apart'
    expected[title] = b"".join(encode_element(apart, PickleSerializer())).hex()
    assert blocks("### Events and elements") == expected, as_block(expected)


def test_vector_of_the_handshake_is_true() -> None:
    secret, client, server = b"the job's secret", bytes(range(16)), bytes(range(16, 32))
    ours, theirs = (
        Handshake(
            is_client=is_client,
            secret=secret,
            nonce=nonce,
            flow_control=FlowControl.CREDIT,
            compression=Compression.NONE,
            segment_bytes=32768,
            peer=PeerName("peer"),
        )
        for is_client, nonce in ((True, client), (False, server))
    )
    challenge = theirs.received(ours.first_word())
    assert isinstance(challenge, LinkChallenge)
    proof = ours.received(challenge)
    assert isinstance(proof, LinkProof)
    expected = {
        "secret": secret.hex(),
        "client's nonce": client.hex(),
        "server's nonce": server.hex(),
        "what the server's HMAC covers": (b"serverheadgate 3 0 32768 0 " + client + server).hex(),
        "server's proof": challenge.proof.hex(),
        "what the client's HMAC covers": (b"clientheadgate 3 0 32768 0 " + client + server).hex(),
        "client's proof": proof.proof.hex(),
    }
    assert blocks("### Proofs") == expected, as_block(expected)


def sealed_vectors() -> dict[str, str]:
    """The handshake of a control connection, and the first frames after it."""
    secret, nonces = bytes(range(32)), (bytes(range(32, 64)), bytes(range(64, 96)))
    worker = WorkerProof("orders", secret, nonces[0], PeerName("driver"))
    driver = DriverProof({"orders": secret}.get, nonces[1], PeerName("worker"))
    hello = worker.first_word()
    challenge = driver.received(hello)
    found = {"Hello": control_frame(hello), "Challenge": control_frame(challenge)}
    proof = worker.received(challenge)
    assert proof is not None
    welcome = driver.received(proof)
    found |= {"Proof": control_frame(proof), "Welcome": control_frame(welcome)}
    assert worker.received(welcome) is None
    found |= {"key to driver": worker.keys.sending, "key to worker": driver.keys.sending}
    to_worker, to_driver = FrameWriter(driver.keys.sending), FrameWriter(worker.keys.sending)
    for number in range(2):
        found[f"to worker {number}, Heartbeat"] = to_worker.encode(Heartbeat())
    found["to driver 0, Heartbeat"] = to_driver.encode(Heartbeat())
    found["to driver 1, empty"] = to_driver.head(b"")
    return {name: data.hex() for name, data in found.items()}


def test_vectors_of_sealed_frames_are_true() -> None:
    expected = sealed_vectors()
    assert blocks("### Sealed frames") == expected, f"it should read\n{as_block(expected)}"


def test_limits_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| (\d+) \|", text_of("docs/protocol.md"), flags=re.MULTILINE)
    assert dict(rows) == {kind.name: str(limit) for kind, limit in BODY_LIMITS.items()}


# The inventory.


def test_inventory_has_every_row_once() -> None:
    rows = re.findall(r"^\| (\d+) \|", text_of("docs/inventory.md"), flags=re.MULTILINE)
    assert [int(row) for row in rows] == ROWS


def test_inventory_names_what_exists() -> None:
    page = text_of("docs/inventory.md")
    missing = [
        path
        for path in set(re.findall(r"`([\w/]+\.py)`", page))
        if not (ROOT / "src/headgate" / path).exists() and not (ROOT / path).exists()
    ]
    assert not missing
