"""Time and chance as a program under test meets them, also where it reads them directly.

``time.time``, ``datetime.now`` and their kin show the virtual clock, ``time.sleep`` takes virtual
time, and the functions of ``random`` and ``uuid.uuid4`` draw from the seed of the run. Law: this
holds for the thread that runs the program, while it runs; others see the real ones.
"""

import copyreg
import datetime
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from headgate.sim.clock import Clock
from headgate.testing.function_source import sleeps_in_source

_real_datetime: Final = datetime.datetime


class _Now:
    clock: Clock | None = None
    thread = 0


def _clock() -> Clock | None:
    return _Now.clock if threading.get_ident() == _Now.thread else None


def _virtual(real: Callable[..., Any], seen: Callable[[Clock], Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        clock = _clock()
        return real(*args, **named) if clock is None else seen(clock)

    call.__name__ = real.__name__
    return call


def _seconds(clock: Clock) -> float:
    return clock.wall_ms / 1000


def _sleep(seconds: float) -> None:
    clock = _clock()
    if clock is None:
        _REAL["sleep"](seconds)
    elif not sleeps_in_source(seconds):
        clock.advance(seconds * 1000)


class _DatetimeKind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real_datetime)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _real_datetime)


class VirtualDatetime(datetime.datetime, metaclass=_DatetimeKind):
    """``datetime.datetime`` while a program runs; what it makes are real ones."""

    def __new__(cls, *args: Any, **named: Any) -> Any:
        return _real_datetime(*args, **named)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        clock = _clock()
        if clock is None:
            return _real_datetime.now(tz)
        return _real_datetime.fromtimestamp(_seconds(clock), tz)

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


_REAL: Final[dict[str, Callable[..., Any]]] = {
    name: getattr(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "sleep")
}
_VIRTUAL: Final[dict[str, Callable[..., Any]]] = {
    "time": _virtual(time.time, _seconds),
    "time_ns": _virtual(time.time_ns, lambda clock: clock.wall_ms * 1_000_000),
    "monotonic": _virtual(time.monotonic, lambda clock: clock.now_ms / 1000),
    "monotonic_ns": _virtual(time.monotonic_ns, lambda clock: int(clock.now_ms * 1_000_000)),
    "sleep": _sleep,
}


def _uuid4() -> uuid.UUID:
    if _clock() is None:
        return _real_uuid4()
    return uuid.UUID(int=random.getrandbits(128), version=4)


_real_uuid4: Final = uuid.uuid4


@contextmanager
def virtual_time(clock: Clock, seed: int) -> Iterator[None]:
    """What the program reads comes from this clock, and from this seed."""
    if _Now.clock is clock:
        yield  # a run within the run
        return
    before = _Now.clock, _Now.thread
    chance = random.getstate()
    if clock not in _seeded:
        random.seed(f"chance {seed}")
    else:
        random.setstate(_seeded[clock])
    _Now.clock, _Now.thread = clock, threading.get_ident()
    undo = _patch()
    try:
        yield
    finally:
        undo()
        _Now.clock, _Now.thread = before
        _seeded[clock] = random.getstate()
        random.setstate(chance)


_seeded: "WeakKeyDictionary[Clock, Any]" = WeakKeyDictionary()


def _reduced(value: datetime.datetime) -> tuple[Any, ...]:
    """How a time is pickled meanwhile: by its name, its class would be the virtual one."""
    reduced: Any = datetime.datetime.__reduce_ex__(value, 4)
    return _revived, reduced[1]


def _revived(*args: Any) -> datetime.datetime:
    return _real_datetime(*args)


class _Places:
    """Where modules hold what is replaced; looked for again when modules were imported."""

    modules = 0
    found: "list[tuple[dict[str, Any], str, Any, Any]]" = []  # noqa: RUF012 - replaced as a whole


def _patch() -> Callable[[], None]:
    """Replace what modules have imported by name, too; returns what undoes it."""
    if _Places.modules != len(sys.modules):
        _Places.found, _Places.modules = _places(), len(sys.modules)
    found = _Places.found
    for names, name, _, swap in found:
        names[name] = swap
    before = copyreg.dispatch_table.get(_real_datetime)
    copyreg.pickle(_real_datetime, _reduced)

    def undo() -> None:
        copyreg.dispatch_table.pop(_real_datetime)
        if before is not None:
            copyreg.pickle(_real_datetime, before)
        for names, name, real, _ in found:
            names[name] = real

    return undo


def _places() -> "list[tuple[dict[str, Any], str, Any, Any]]":
    swaps: dict[int, Any] = {id(real): _VIRTUAL[name] for name, real in _REAL.items()}
    swaps[id(_real_datetime)] = VirtualDatetime
    swaps[id(_real_uuid4)] = _uuid4
    return [
        (vars(module), name, value, swaps[id(value)])
        for module in (time, datetime, uuid, *user_modules())
        for name, value in list(vars(module).items())
        if id(value) in swaps
    ]


def user_modules() -> Iterator[ModuleType]:
    """Modules that may hold functions of the program: not those of Python, Headgate or packages."""
    for name, module in list(sys.modules.items()):
        if _is_user(name, getattr(module, "__file__", None)):
            yield module


def _is_user(name: str, file: str | None) -> bool:
    if name == "__main__":
        return True
    if not file or name.split(".")[0] in ("headgate", "pyspark", "_pytest", "pytest"):
        return False
    return "site-packages" not in file and not file.startswith(_STANDARD)


_STANDARD: Final = tuple({datetime.__file__.rsplit("/", 1)[0] + "/", sys.prefix + "/lib"})
