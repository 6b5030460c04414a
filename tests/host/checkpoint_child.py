"""A process that takes checkpoints and is not let finish: `python -m tests.host.checkpoint_child`.

`steps FOLDER`: take checkpoint after checkpoint in forked processes, each of which dies at the next
step of the storage. `endless FOLDER`: take them until killed; prints the number of each complete
one. `full FOLDER`: no file may grow above 40,000 bytes; prints the error of each attempt.
`stranger FOLDER`: as a user without rights.
"""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.base.checkpoints import SubtaskState
from headgate.base.errors import CheckpointError
from headgate.host.checkpoints.checkpoint_store import CheckpointStore, complete, open_store
from headgate.host.checkpoints.folder import Folder
from headgate.host.checkpoints.location import CheckpointLocation
from headgate.host.checkpoints.pieces import PartWriter
from headgate.host.files.private_files import PrivateFiles
from tests.host.checkpoint_kit import JOB, metadata_of, shared_pieces, take_next, write_task

LIMIT_BYTES = 40_000
NOBODY = 65534
DIED = 9
STEPS = ("make", "create", "settle", "_write", "_give_name", "remove", "remove_all", "put")


def take_and_drop(storage: CheckpointStore, source: Path) -> None:
    """The newest complete one is followed by another, and dropped."""
    before = storage.restore_candidates(JOB).latest
    assert before is not None
    assert before.metadata is not None
    take_next(storage, shared=(source,), reused=shared_pieces(before.metadata)[-1:])
    storage.drop(before.location)


def steps(folder: Path, source: Path) -> None:
    storage = open_store(str(folder))
    take_next(storage, shared=(source,))
    step = 0
    while True:
        step += 1
        child = os.fork()
        if not child:
            die_at(step)
            take_and_drop(storage, source)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = storage.restore_candidates(JOB).latest
        assert found is not None, f"nothing is left after step {step}"
        print(step, code, found.checkpoint, flush=True)
        if code == 0:
            return
        assert code == DIED, code


def die_at(step: int) -> None:
    """The process ends without a word before that call of the storage."""
    calls = 0

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os._exit(DIED)
            return method(*args, **more)

        return called

    for name in STEPS:
        setattr(Folder, name, dying(getattr(Folder, name)))
    setattr(PrivateFiles, "sync", dying(PrivateFiles.sync))  # noqa: B010


def endless(folder: Path) -> None:
    storage = open_store(str(folder))
    data = os.urandom(200_000)
    while True:
        number = storage.next_id(JOB)
        location = storage.location(JOB, number)
        state = write_task(location, 0, dict.fromkeys(range(16), data))
        complete(location, metadata_of(number, (state,)))
        print(number, flush=True)


def full(folder: Path) -> None:
    storage = open_store(str(folder))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
    location = storage.location(JOB, 50)
    source = folder.parent / "table.sst"
    writers = [PartWriter(location, "t") for _ in range(2)]  # nobody ends them
    attempts: dict[str, Callable[[], object]] = {
        "large piece": lambda: write_task(location, 0, {0: bytes(100 * LIMIT_BYTES)}),
        "many pieces": lambda: write_task(location, 0, dict.fromkeys(range(100), bytes(30_000))),
        "at the end": lambda: write_task(location, 0, dict.fromkeys(range(3), bytes(30_000))),
        "a piece alone": lambda: writers[0].append(bytes(100 * LIMIT_BYTES)),
        "shared file": lambda: writers[1].share(str(source)),
        "metadata": lambda: complete(location, metadata_of(50, inline_tasks(location))),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except CheckpointError as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)


def inline_tasks(location: CheckpointLocation) -> tuple[SubtaskState, ...]:
    """More in the metadata than a file may hold."""
    return tuple(
        write_task(location, subtask, {0: bytes(18_000)}, inline_bytes=20_000)
        for subtask in range(8)
    )


def stranger(folder: Path) -> None:
    if os.getuid() == 0:  # whom no right is denied
        os.setuid(NOBODY)
    for attempt in (
        lambda: open_store(str(folder / "new")),
        lambda: open_store(str(folder)).folder.probe(),
        lambda: PartWriter(open_store(str(folder)).location(JOB, 1), "t").append(bytes(50_000)),
    ):
        try:
            attempt()
        except CheckpointError as error:
            print(f"{type(error).__name__}: {error}", flush=True)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "steps":
        steps(folder, Path(sys.argv[3]))
    else:
        {"endless": endless, "full": full, "stranger": stranger}[what](folder)


if __name__ == "__main__":
    main()
