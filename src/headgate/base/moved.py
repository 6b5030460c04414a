"""Names that classes and functions had in earlier releases, as files still hold them.

Pickles in checkpoints, savepoints and prepared transactions name classes by module and qualified
name; key groups, key bytes and marks of splits are computed from such names. Law: whatever a
release has written can be read after a class has moved, and a thing that has moved keeps the key
group, key bytes and mark that it had under its first name. Reading costs nothing more as long as
no old name is met. Called wherever bytes are read that may outlive the process that wrote them.
"""

import io
import pickle
import sys
from types import FunctionType
from typing import Any, ClassVar, Final

MOVED: Final[dict[str, str]] = {
    "headgate.api.time:Duration": "headgate.functions.time:Duration",
    "headgate.api.time:Instant": "headgate.functions.time:Instant",
    "headgate.api.time:Time": "headgate.functions.time:Time",
    "headgate.connectors.data_generator:IndexSplit": "headgate.connectors.generator:IndexSplit",
    "headgate.connectors.db_commits:RowsCommit": "headgate.connectors.sql:RowsCommit",
    "headgate.connectors.function_source:FunctionPosition": (
        "headgate.connectors.function:FunctionPosition"
    ),
    "headgate.connectors.part_commits:PartCommit": (
        "headgate.connectors.files.part_commits:PartCommit"
    ),
    "headgate.connectors.function.source:FunctionPosition": (
        "headgate.connectors.function:FunctionPosition"
    ),
    "headgate.connectors.generator.source:IndexSplit": "headgate.connectors.generator:IndexSplit",
    "headgate.connectors.nats.fetcher:NatsMessage": "headgate.connectors.nats.source:NatsMessage",
    "headgate.connectors.nats.fetcher:NatsPlace": "headgate.connectors.nats.source:NatsPlace",
    "headgate.connectors.postgres.inserts:InsertLot": (
        "headgate.connectors.postgres.commits:InsertLot"
    ),
    "headgate.connectors.postgres.prepared:PreparedLot": (
        "headgate.connectors.postgres.commits:PreparedLot"
    ),
    "headgate.connectors.redis.entries:EntryId": "headgate.connectors.redis.source:EntryId",
    "headgate.connectors.redis.entries:RedisEntry": "headgate.connectors.redis.source:RedisEntry",
    "headgate.connectors.sql.commits:RowsCommit": "headgate.connectors.sql:RowsCommit",
    "headgate.core.chain.tags:OutputTag": "headgate.functions.function:OutputTag",
    "headgate.core.chain.timer_service:TimeDomain": "headgate.functions.context:TimeDomain",
    "headgate.core.state.folding:Folded": "headgate.core.state.snapshot:Folded",
    "headgate.core.state.freezing:Frozen": "headgate.core.state.keys:Frozen",
    "headgate.core.window.evictors:TimestampedValue": (
        "headgate.functions.evictors:TimestampedValue"
    ),
    "headgate.core.window.triggers:TriggerResult": "headgate.functions.triggers:TriggerResult",
    "headgate.core.window.window:CountWindow": "headgate.functions.window:CountWindow",
    "headgate.core.window.window:GlobalWindow": "headgate.functions.window:GlobalWindow",
    "headgate.core.window.window:TimeWindow": "headgate.functions.window:TimeWindow",
    "headgate.spark.collected:Lot": "headgate.spark.collect:ResultBatch",
}
"""Old name to the name now, each ``module:qualname``, of every class or function that a pickle may
name; a nested class has a line of its own. A thing that has moved twice has two lines, the older
one first, and both lead to where it is now.
"""

NOT_FOUND: Final = (ModuleNotFoundError, AttributeError)
"""Errors of ``pickle.loads`` for a name that is not there; then call ``loads_moved``."""


def loads(data: bytes | memoryview) -> Any:
    """``pickle.loads`` that also finds what has moved; raises what ``pickle.loads`` would."""
    try:
        return pickle.loads(data)
    except NOT_FOUND as error:
        return loads_moved(data, error)


def loads_moved(data: bytes | memoryview, error: Exception) -> Any:
    """The second try, after one of NOT_FOUND; raises that again if ``data`` has no old name.

    Where every call counts, the caller tries ``pickle.loads`` itself.
    """
    whole = bytes(data)
    if not any(name.partition(":")[0].encode() in whole for name in MOVED):
        raise error
    return _Translating(io.BytesIO(whole)).load()


class _Translating(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        new = MOVED.get(f"{module}:{name}", f"{module}:{name}")
        return super().find_class(*_parted(new))


def _parted(name: str) -> tuple[str, str]:
    """Module and qualified name; as in pickles, equal modules are the same object."""
    module, _, qualname = name.partition(":")
    return sys.intern(module), sys.intern(qualname)


def _first_names() -> dict[tuple[str, str], tuple[str, str]]:
    return {_parted(new): _parted(old) for old, new in reversed(MOVED.items())}


_FIRST: Final = _first_names()


def first_name(thing: Any) -> tuple[str, str]:
    """Module and qualified name of a class or function as the first release had them."""
    # What a class written in C gives to pickle may be a method of it, which names no module.
    module = thing.__module__ or getattr(thing.__self__, "__module__", "")
    name = module, thing.__qualname__
    return _FIRST.get(name, name)


def first_bytes(data: bytes, value: object, fast: bool = False) -> bytes:
    """A pickle of ``value`` as the first release would have written it, to be hashed.

    ``data`` is how it is pickled now (protocol 5; ``fast``: without memo), which mostly is the
    answer.
    """
    if not any(module.encode() in data for module, _ in _FIRST):
        return data
    target = io.BytesIO()
    pickler = _Former(target, 5)
    pickler.fast = fast
    pickler.dump(value)
    return target.getvalue()


_PurePickler: Any = pickle._Pickler  # type: ignore[attr-defined, unused-ignore]


class _Former(_PurePickler):  # type: ignore[misc] # what it overrides has no types
    """The pickler that is written in Python: that of C looks up names by itself."""

    dispatch: ClassVar = dict(_PurePickler.dispatch)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        old = first_name(obj) if hasattr(obj, "__qualname__") else None
        if old is None or old == (obj.__module__, obj.__qualname__):
            super().save_global(obj, name)
            return
        for part in old:
            self.save(part)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    dispatch[FunctionType] = save_global
