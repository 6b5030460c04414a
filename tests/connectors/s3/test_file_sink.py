"""Part files in S3: each record once, whenever the task is killed, and nothing half in sight."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.base.errors import PathUnusable
from headgate.connectors.files.layout import RollingPolicy
from headgate.connectors.files.part_commits import PartCommit, PartCommitter
from headgate.connectors.files.sink import TextFileSink
from headgate.connectors.paths import folder_uri
from tests.connectors.lake_kit import checkpoint, feed, restored
from tests.core.chain.sink_lab import open_sink, sink_context
from tests.host.processes import ROOT
from tests.s3_kit import BUCKET, Fault, FaultProxy, Store

pytest.importorskip("moto.server")

CHILD = """
import os, sys
from pathlib import Path
from headgate.connectors.files.sink import TextFileSink
from headgate.connectors.files import remote_folder
from tests.connectors.lake_kit import checkpoint, feed
from tests.core.chain.sink_lab import open_sink, sink_context

def run(uri, state):
    task = open_sink(TextFileSink(uri), sink_context())
    feed(task, *range(10))
    Path(state).write_bytes(checkpoint(task, 1))
    print("prepared", flush=True)
    sys.stdin.readline()
    task.checkpoint_completed(1)
    print("committed", flush=True)
    sys.stdin.readline()
    os._exit(0)

for line in sys.stdin:
    # A new process for each run, which has the modules already and no client of S3 yet.
    child = os.fork()
    if not child:
        run(*line.split())
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def runner() -> Iterator["subprocess.Popen[str]"]:
    command, pipe = [sys.executable, "-c", CHILD], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.communicate(timeout=30)


def lines_of(store: Store, path: str) -> list[int]:
    names = [name for name in store.names(path) if not name.startswith(".")]
    text = b"".join(store.read(f"{path}/{name}") for name in names)
    return sorted(map(int, text.split()))


def test_a_task_that_is_killed_before_any_step_of_its_commit_writes_everything_once(
    store: Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    requests: list[str] = []
    with runner() as process:
        assert process.stdin is not None and process.stdout is not None
        answers = iter(process.stdout.readline, "")
        for step in range(40):
            path, state = f"killed-{step}", tmp_path / str(step)
            proxy.choose = lambda method, path: None
            process.stdin.write(f"{store.at(path, proxy.port)} {state}\n")
            process.stdin.flush()
            started = {next(answers).strip(), next(answers).strip()}
            (child,) = started - {"prepared"}
            left = [step]

            def choose(method: str, path: str, left: list[int] = left, pid: int = int(child)):  # type: ignore[no-untyped-def]
                if method in ("HEAD", "GET"):  # which changes nothing
                    return None
                if left[0]:
                    left[0] -= 1
                    return None
                os.kill(pid, signal.SIGKILL)
                return Fault(resets=True)

            proxy.seen.clear()
            proxy.choose = choose
            process.stdin.write("go\n")
            process.stdin.flush()
            said = next(answers).strip()
            if said == "committed":
                requests = [method for method, _ in proxy.seen]
                os.kill(int(child), signal.SIGKILL)
                said = next(answers).strip()
            assert said == str(-signal.SIGKILL)
            proxy.choose = lambda method, path: None
            sink = TextFileSink(store.at(path, proxy.port))
            task = open_sink(sink, sink_context(attempt=1, restored=restored(state.read_bytes())))
            feed(task, *range(10, 20))
            checkpoint(task, 2)
            task.checkpoint_completed(2)
            task.close()
            assert lines_of(store, path) == list(range(20)), step
            assert not [name for name in store.names(path) if name.startswith(".")], step
            if requests:
                break
    steps = [method for method in requests if method not in ("HEAD", "GET")]
    assert steps[:2] == ["PUT", "DELETE"], "the copy, and the removal of the hidden part"
    assert step == len(steps)


def test_a_savepoint_with_parts_that_wait_shows_them_in_the_next_job(store: Store) -> None:
    task = open_sink(TextFileSink(store.at("saved")), sink_context())
    feed(task, *range(10))
    state = checkpoint(task, 1, savepoint=True)
    task.close()  # it was never told that the savepoint is complete
    task = open_sink(
        TextFileSink(store.at("saved")), sink_context(attempt=1, restored=restored(state))
    )
    feed(task, *range(10, 20))
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert lines_of(store, "saved") == list(range(20))
    assert not [name for name in store.names("saved") if name.startswith(".")]


def test_a_large_part_goes_in_pieces_and_is_out_of_sight_until_it_is_whole(
    store: Store, proxy: FaultProxy
) -> None:
    policy = RollingPolicy.on_checkpoint_rolling_policy()
    sink = TextFileSink(store.at("large", proxy.port), rolling_policy=policy)
    task = open_sink(sink, sink_context())
    line = "x" * 999_999
    feed(task, *[line] * 13)
    assert store.names("large") == [], "an upload that is not complete has no name"
    checkpoint(task, 1)
    assert [name[0] for name in store.names("large")] == ["."]
    task.checkpoint_completed(1)
    task.close()
    (name,) = store.names("large")
    assert store.read(f"large/{name}") == f"{line}\n".encode() * 13
    parts = {found[1] for _, path in proxy.seen if (found := re.search(r"partNumber=(\d+)", path))}
    assert len(parts) >= 2


def test_a_task_that_fails_leaves_nothing_in_sight(store: Store) -> None:
    task = open_sink(TextFileSink(store.at("failed")), sink_context())
    feed(task, *range(10))
    task.close()
    assert store.names("failed") == []


def test_throttling_and_lost_connections_are_waited_out(store: Store, proxy: FaultProxy) -> None:
    task = open_sink(TextFileSink(store.at("throttled", proxy.port)), sink_context())
    feed(task, *range(10))
    proxy.first(3, Fault(503, "SlowDown"))
    checkpoint(task, 1)
    proxy.first(2, Fault(resets=True))
    task.checkpoint_completed(1)
    proxy.first(2, Fault(500, "InternalError"))
    feed(task, *range(10, 20))
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert lines_of(store, "throttled") == list(range(20))


def test_a_file_of_somebody_else_is_not_taken_for_the_part(store: Store) -> None:
    with store.system().open_output_stream(f"{BUCKET}/theirs/part-0") as file:
        file.write(b"theirs\n")
    with store.system().open_output_stream(f"{BUCKET}/theirs/.part-0") as file:
        file.write(b"our longer part\n")
    part = PartCommit(folder_uri(store.at("theirs")), ".part-0", "part-0", length=16)
    with pytest.raises(PathUnusable, match="exists already and is of somebody else"):
        PartCommitter().commit([part])
    assert store.names("theirs") == [".part-0", "part-0"]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault(403, "InvalidAccessKeyId"), "cannot be written: the access key is unknown"),
        (Fault(403, "AccessDenied"), "cannot be written: access is denied; allow"),
    ],
)
def test_a_sink_that_is_refused_says_so_when_it_opens(
    store: Store, proxy: FaultProxy, fault: Fault, sentence: str
) -> None:
    proxy.first(1000, fault)
    with pytest.raises(PathUnusable, match=sentence) as refused:
        open_sink(TextFileSink(store.at("refused", proxy.port)), sink_context())
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)
    assert str(refused.value).startswith("s3://shop/refused")


def test_a_sink_without_its_bucket_says_so_when_it_opens(store: Store) -> None:
    with pytest.raises(PathUnusable, match="s3://nowhere/out.*there is no bucket nowhere"):
        open_sink(TextFileSink(store.at("out", bucket="nowhere")), sink_context())
