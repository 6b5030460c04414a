"""What a job's end of a stream knows of it: name, schema, limits, and where its log is.

A program names its inputs and outputs; where their logs are is settled when the job is launched.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import pyarrow as pa
from msgspec import structs

from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid, StreamUnfit
from headgate.connectors.arrow.types import arrow_schema
from headgate.connectors.checks import COUNT, check_settings
from headgate.connectors.paths import AnyPath, readable_path
from headgate.connectors.streaming.stream_log import (
    Committed,
    StreamInfo,
    StreamLog,
    StreamOwner,
    new_info,
    run_of,
)

MOST_BYTES: Final = 256 << 20
LONGEST_NAME: Final = 60
"""Characters; of four bytes each they are a file name everywhere."""


@dataclass(eq=False)
class StreamEnd:
    """What a program says of an input or output, and where its log is."""

    kind: str
    name: str
    schema: Any
    """As the program has given it; Spark's words are read when the job is launched."""
    path: str
    """The folder of the log, if the program says so; else empty."""
    most_bytes: int
    most_batches: int
    """How many micro-batches of queries, or checkpoints of the job, may be unread."""
    uri: str = ""
    """The address of the log; empty: the job was not launched."""
    owner: str = ""
    """The token of this start of the job."""
    start: int = 0
    begun: int = 0
    """See ``StreamOwner``."""
    reference: str = ""
    """A file that is to hold the uri, for a DataFrame that was made before the job."""
    frame: Any = None
    """A streaming DataFrame whose query the job starts and stops; it stays in the driver."""

    def __post_init__(self) -> None:
        user = _user(self.kind)
        name: object = self.name
        if not isinstance(name, str) or not is_file_name(name):
            raise PlanInvalid(
                f"{user}: the name is {self.name!r}, and becomes that of a folder; give letters, "
                f"digits, spaces and . - _, at most {LONGEST_NAME}, the first no dot"
            )
        if isinstance(self.schema, TypeInformation):
            self.schema = arrow_schema(self.schema, user)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "frame": None}

    @property
    def shown(self) -> str:
        return f"{self.kind} {self.name!r}"

    def log(self) -> StreamLog:
        """Raises PlanInvalid if the job was launched by something that knows no streams."""
        if not self.uri:
            raise PlanInvalid(f"{self.shown} has no folder; give path=...")
        return StreamLog(self.uri)

    def attach(
        self,
        uri: str,
        owner: StreamOwner,
        types: tuple[str, ...] = (),
        restored: int | None = None,
    ) -> None:
        """Make the log, or go on with the one that is there, as the job that owns it.

        ``types``: of the columns, in Spark's words; ``restored``: the checkpoint that the job goes
        on from, None: it begins. Raises StreamUnfit if it does not fit.
        """
        assert isinstance(self.schema, pa.Schema), self.schema
        texts = types or tuple(str(field.type) for field in self.schema)
        wanted = new_info(
            self.kind, self.name, self.schema, texts, (self.most_bytes, self.most_batches)
        )
        log = StreamLog(uri)
        found = log.create(wanted)
        self._check(log, found, owner, columns_of(texts, self.schema))
        self._count_start(log, owner.token, restored is not None)
        if restored is not None and self.kind == "output":
            self.check_place(log, restored)
        if _changed(found, wanted):
            kept = (found.log, wanted.kind, wanted.name, wanted.schema, wanted.columns)
            log.describe(StreamInfo(*kept, wanted.most_bytes, wanted.most_batches))
        self.uri, self.owner = log.uri, owner.token
        log.set_owner(structs.replace(owner, start=self.start, begun=self.begun))
        log.tidy()

    def taken_over(self, log: StreamLog, owner: StreamOwner) -> str:
        """What is wrong if another start of a job has the log."""
        verb = "read" if self.kind == "input" else "write"
        return (
            f"{self.shown} in {log.folder.shown()} was taken over by job {owner.job} "
            f"({owner.name}); let only one job {verb} it"
        )

    def check_place(self, log: StreamLog, restored: int) -> None:
        """Raises StreamUnfit if more of the job was shown than this checkpoint has."""
        shown = log.committed()
        if shown.run[0] >= self.begun and shown.checkpoint > restored:
            raise StreamUnfit(self.gone_back(log, restored, shown))

    def gone_back(self, log: StreamLog, restored: int, shown: Committed) -> str:
        """What is wrong with an older checkpoint."""
        return (
            f"{self.shown} in {log.folder.shown()}: the job goes back to checkpoint {restored}, "
            f"and queries were given the rows up to checkpoint {shown.checkpoint} of attempt "
            f"{shown.run[1]} of its start {shown.run[0]}: they would get rows twice; go on from "
            f"the newest checkpoint, or begin a new output: give the sink another uid and name"
        )

    def _count_start(self, log: StreamLog, token: str, is_restored: bool) -> None:
        """Writers of later starts must have higher numbers, whatever was lost of the folder."""
        before, removed = log.owner(), log.removed()
        if before is not None and before.token == token:
            self.start, self.begun = before.start, before.begun
            return
        writers = {*log.entries(), *(name.partition(".")[0] for name in log.parts())}
        runs = [run for run in map(run_of, writers) if run is not None]
        runs += [removed.floor, removed.last.run]
        known = 0 if before is None else before.start
        self.start = max(known, *(start for start, _ in runs)) + 1
        self.begun = self.start if before is None or not is_restored else before.begun

    def _check(
        self, log: StreamLog, found: StreamInfo, owner: StreamOwner, given: "Columns"
    ) -> None:
        where = f"{self.shown} in {log.folder.shown()}"
        if found.kind != self.kind:
            raise StreamUnfit(f"{where} is an {found.kind} already; give another path")
        before = log.owner()
        is_other = before is not None and before.token != owner.token
        if before is not None and is_other and before.lives_on(owner.host):
            raise StreamUnfit(
                f"{where} belongs to job {before.job} ({before.name}), which runs; stop that one "
                f"first, or give another path"
            )
        before_columns = columns_of((text for _, text in found.columns), found.arrow_schema)
        problem = misfit(before_columns, given, ("log", "job"))
        if problem and log.entries():
            raise StreamUnfit(
                f"{where} holds rows of another schema: {problem}; let them be read with the old "
                f"schema first"
            )


Columns: TypeAlias = Mapping[str, tuple[str, pa.DataType]]
"""Types by name: in the words of people, and in Arrow's."""


def columns_of(texts: Iterable[str], schema: pa.Schema) -> Columns:
    return {field.name: (text, field.type) for field, text in zip(schema, texts, strict=True)}


def misfit(there: Columns, given: Columns, whose: tuple[str, str]) -> str | None:
    """Why rows of one schema are none of the other; None: they are.

    ``whose``: the two, in messages.
    """
    first, second = whose
    for name, (text, kind) in there.items():
        if name not in given:
            return f"the {second} has no column {name!r}, which is {text} in the {first}"
        other, other_kind = given[name]
        if not same_type(kind, other_kind):
            return f"column {name!r} is {text} in the {first}, and {other} in the {second}"
    for name in given:
        if name not in there:
            return f"the {first} has no column {name!r}; it has {', '.join(there)}"
    return None


def same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values keep their meaning; names of list items and time zones may differ."""
    types = pa.types
    if types.is_timestamp(left) and types.is_timestamp(right):
        return (left.tz is None, left.unit) == (right.tz is None, right.unit)
    for is_kind in (types.is_list, types.is_map, types.is_struct):
        if is_kind(left) and is_kind(right):
            return left.num_fields == right.num_fields and all(
                (not types.is_struct(left) or left.field(n).name == right.field(n).name)
                and same_type(left.field(n).type, right.field(n).type)
                for n in range(left.num_fields)
            )
    wide = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(wide.get(left, left) == wide.get(right, right))


def is_file_name(name: str) -> bool:
    """Whether a name is one folder's, here, in stores and in the URIs that Spark reads."""
    fits = name[:1] not in ("", ".", " ") and len(name) <= LONGEST_NAME
    return fits and all(sign.isalnum() or sign in " ._-" for sign in name)


def stream_end(
    kind: str, name: str, schema: object, path: "AnyPath | None", limits: Mapping[str, int]
) -> StreamEnd:
    """As a program gives it; raises PlanInvalid. ``limits``: of bytes, and of batches."""
    check_settings(SimpleNamespace(**limits), dict.fromkeys(limits, COUNT), _user(kind))
    place = "" if path is None else readable_path(path)
    most_bytes, most_batches = limits.values()
    return StreamEnd(kind, name, schema, place, most_bytes, most_batches)


def _user(kind: str) -> str:
    """The class of an input or output, for messages."""
    return f"Streaming{kind.capitalize()}"


def _changed(found: StreamInfo, wanted: StreamInfo) -> bool:
    return (found.schema, found.columns, found.most_bytes, found.most_batches) != (
        wanted.schema,
        wanted.columns,
        wanted.most_bytes,
        wanted.most_batches,
    )
