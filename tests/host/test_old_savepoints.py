"""Jobs go on from savepoints and checkpoints of earlier releases as if nothing had been.

`saved_kit` says what stands in the archives and how those of the next release are made.
"""

import re
import sys
import tarfile
from pathlib import Path

import pytest

from headgate.base import moved
from tests.host.saved_kit import FOLDER, MEMORY, ROCKSDB, go_on

ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))
PYTHON = re.compile(rb"\xa6python\xa4(3\.1\d)")
"""In the tables of a database: which Python can read its files."""
NAMES = {
    "headgate.api.row": ["make_row", "Row", "RowKind"],
    "headgate.api.time": ["Duration", "Instant", "Time"],
    "headgate.base.elements": ["StreamStatus", "Watermark"],
    "headgate.connectors.data_generator": ["IndexSplit"],
    "headgate.connectors.db_commits": ["RowsCommit"],
    "headgate.connectors.function_source": ["FunctionPosition"],
    "headgate.connectors.part_commits": ["PartCommit"],
    "headgate.core.chain.tags": ["OutputTag"],
    "headgate.core.chain.timer_service": ["TimeDomain"],
    "headgate.core.state.folding": ["Folded"],
    "headgate.core.state.freezing": ["Frozen"],
    "headgate.core.window.evictors": ["TimestampedValue"],
    "headgate.core.window.triggers": ["TriggerResult"],
    "headgate.core.window.window": ["CountWindow", "GlobalWindow", "TimeWindow"],
    "headgate.spark.collected": ["Lot"],
}
"""What release 0.1 may have put into a checkpoint, under its names of then."""
UNSEEN = {"Frozen", "Lot", "OutputTag", "TimeDomain", "TriggerResult"}
"""No archive shows them: the first stands in compressed files of a database, a lot is of a sink
that sends to a driver, and the others are there only if a user keeps them in state.
"""


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as file:
        files = [(member.name, file.extractfile(member)) for member in file]
        return {name: found.read() for name, found in files if found is not None}


def show(archive: Path) -> str:
    return archive.name.removesuffix(".tar.xz")


@pytest.mark.parametrize("archive", ARCHIVES, ids=show)
def test_a_job_goes_on_from_what_an_earlier_release_has_left(archive: Path) -> None:
    found = {python for data in contents(archive).values() for python in PYTHON.findall(data)}
    if found - {b"%d.%d" % sys.version_info[:2]}:
        pytest.skip(f"files of a database are read by Python {found.pop().decode()} alone")
    in_memory = archive.name.split("-")[2] in ("savepoint.tar.xz", "unaligned.tar.xz")
    written, expected = go_on(archive, MEMORY if in_memory else ROCKSDB)
    assert len(written) == len(expected)
    assert written == expected


def test_the_archives_hold_every_class_that_a_checkpoint_may_name() -> None:
    held = b"".join(data for archive in ARCHIVES for data in contents(archive).values())
    for module, names in NAMES.items():
        for name in {*names} - UNSEEN:
            assert module.encode() in held, module
            assert name.encode() in held, name


@pytest.mark.parametrize("module", NAMES)
def test_every_class_that_a_checkpoint_may_name_is_found_under_its_old_name(module: str) -> None:
    for name in NAMES[module]:
        parts = b"".join(b"\x8c%c%b" % (len(part), part.encode()) for part in (module, name))
        thing = moved.loads(b"\x80\x05" + parts + b"\x93.")
        assert moved.first_name(thing) == (module, name)
