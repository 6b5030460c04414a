"""The job's code on its way: classes of __main__ arrive, what cannot travel is named."""

import functools
import logging
import pickle
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.base.errors import CodeUnloadable, FunctionUnpicklable
from headgate.host.shipping.code import ship, unship
from tests.host.jobs import job_of, vertices_of
from tests.host.processes import ROOT

PROGRAM = """
import sys
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from headgate.host.shipping.code import ship
from tests.host.jobs import job_of, vertices_of

class Colour(Enum):
    RED = 1

@dataclass
class Click:
    user: str
    colour: Colour
    class Where:
        pass

Pair = namedtuple("Pair", "a b")

def map_it(number):
    return [Click("me", Colour.RED), Pair(number, 2), Click.Where()]

if __name__ == "__main__":
    sys.stdout.buffer.write(ship(vertices_of(job_of(Path("x"), map_it))))
"""

WORKER = """
import pickle, sys
from headgate.host.shipping.code import unship
vertices = unship(sys.stdin.buffer.read())
function = vertices[1].chain.operators[0].make.args[0]
again = pickle.loads(pickle.dumps(function(1)))
print(again[0], again[1], type(again[2]).__qualname__, again[0] == function(1)[0])
"""


def python(*arguments: str, data: bytes = b"") -> bytes:
    done = subprocess.run(
        [sys.executable, *arguments], input=data, capture_output=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_records_of_classes_in_main_can_be_pickled_in_a_worker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + PROGRAM)
    code = python(str(program))
    said = python("-c", WORKER, data=code).decode().strip()
    assert said == ("Click(user='me', colour=<Colour.RED: 1>) Pair(a=1, b=2) Click.Where True")


SLOTS = """
import abc, sys
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headgate.host.shipping.code import ship
from tests.host.jobs import job_of, vertices_of

@dataclass(slots=True)
class Base:
    user: str

@dataclass(slots=True)
class Derived(Base):
    amount: int = 0

@dataclass(frozen=True, slots=True)
class Frozen:
    user: str

class Private(abc.ABC):
    __slots__ = ("__hidden", "__weakref__")
    def __init__(self):
        self.__hidden = 5
    def shown(self):
        return self.__hidden

class Left(Base):
    __slots__ = ()
    name = Base.user

class Right(Base):
    __slots__ = ()
    who = Base.user

class Renamed(Left, Right):
    __slots__ = ()

class Pair(NamedTuple):
    a: int

Old = namedtuple("Old", "a")

def map_it(number):
    made = [Base("me"), Derived("me", 1), Frozen("me"), Private(), Pair(1), Old(1)]
    found = [hasattr(value, "__dict__") for value in [*made, Renamed("me")]]
    assert Renamed("me").name == Renamed("me").who == "me"
    return made[:3], made[3].shown(), made[4], found, Private.__weakrefoffset__ > 0

if __name__ == "__main__":
    sys.stdout.buffer.write(ship(vertices_of(job_of(Path("x"), map_it))))
"""

SLOTS_WORKER = (
    WORKER.rpartition("again =")[0]
    + """
made, hidden, pair, found, has_weak_references = pickle.loads(pickle.dumps(function(1)))
print(made, hidden, pair, found, has_weak_references)
"""
)


def test_classes_in_main_keep_their_slots_in_a_worker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + SLOTS)
    said = python("-c", SLOTS_WORKER, data=python(str(program))).decode().strip()
    made = "[Base(user='me'), Derived(user='me', amount=1), Frozen(user='me')]"
    assert said == f"{made} 5 Pair(a=1) {[False] * 7} True"


SUBMODULES = """
import sys
from pathlib import Path

import parcel
import parcel.closure, parcel.comprehension, parcel.generator, parcel.kept.helper
import parcel.in_lambda, parcel.local_class, parcel.method, parcel.unused
from headgate.host.shipping.code import ship
from tests.host.jobs import job_of, vertices_of

def in_lambda():
    return (lambda: parcel.in_lambda.VALUE)()

def comprehension():
    return [parcel.comprehension.VALUE for _ in range(1)][0]

def generator():
    return next(parcel.generator.VALUE for _ in range(1))

class Fetcher:
    def fetch(self):
        def inner():
            return lambda: parcel.method.VALUE
        return inner()()

def local_class():
    class Local:
        value = parcel.local_class.VALUE
    return Local.value

def enclosed():
    package = parcel
    return lambda: [package.closure.VALUE for _ in range(1)][0]

closure = enclosed()

def helper():
    return (lambda: parcel.kept.helper.VALUE)()

CALLS = (in_lambda, comprehension, generator, Fetcher().fetch, local_class, closure, helper)

def map_it(number):
    return [call() for call in CALLS], "parcel.unused" in sys.modules

if __name__ == "__main__":
    sys.stdout.buffer.write(ship(vertices_of(job_of(Path("x"), map_it))))
"""


def test_submodules_that_nested_code_uses_are_imported_in_a_worker(tmp_path: Path) -> None:
    names = ["in_lambda", "comprehension", "generator", "method", "local_class", "closure"]
    (tmp_path / "parcel" / "kept").mkdir(parents=True)
    for name in ["__init__", "kept/__init__", *names, "kept/helper", "unused"]:
        (tmp_path / "parcel" / f"{name}.py").write_text(f"VALUE = {name!r}")
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + SUBMODULES)
    worker = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from headgate.host.shipping.code import unship
vertices = unship(sys.stdin.buffer.read())
print(vertices[1].chain.operators[0].make.args[0](1))
"""
    said = python("-c", worker, data=python(str(program))).decode().strip()
    assert said == str(([*names, "kept/helper"], False))


def test_vertices_arrive_as_they_were(tmp_path: Path) -> None:
    vertices = vertices_of(job_of(tmp_path))
    arrived = unship(ship(vertices))
    assert list(arrived) == list(vertices)
    assert [v.name for v in arrived.values()] == [v.name for v in vertices.values()]


class Held:
    """A function with something in it that cannot travel."""

    def __init__(self) -> None:
        self.harmless = [1, 2]
        self.lock = threading.Lock()

    def map(self, value: int) -> int:
        with self.lock:
            return value


@dataclass
class Client:
    lock: object


class Outer:
    def __init__(self) -> None:
        self.client = Client(threading.Lock())

    def map(self, value: int) -> int:
        return value


def closure() -> object:
    lock = threading.Lock()

    def guarded(value: int) -> int:
        with lock:
            return value

    return guarded


def with_default() -> object:
    return lambda value, lock=threading.Lock(): value  # noqa: B008


@pytest.mark.parametrize(
    ("function", "culprit"),
    [
        (Held(), "attribute 'lock' of Held (a lock)"),
        (closure(), "closure variable 'lock' of closure.<locals>.guarded (a lock)"),
        (with_default(), "a default argument of with_default.<locals>.<lambda> (a lock)"),
        (functools.partial(print, threading.Lock()), "argument 0 of partial (a lock)"),
        (functools.partial(print, end=threading.Lock()), "argument 'end' of partial (a lock)"),
        (Held().map, "attribute 'lock' of Held (a lock)"),
        (threading.Lock(), "lock itself"),
        (
            Outer(),
            "attribute 'lock' of Client (a lock), which attribute 'client' of Outer (a Client)",
        ),
        (functools.partial(print, {"a": [threading.Lock()]}), "element 0 (a lock)"),
    ],
    ids=["attribute", "closure", "default", "partial", "keyword", "method", "self", "deep", "list"],
)
def test_what_cannot_travel_is_named(tmp_path: Path, function: object, culprit: str) -> None:
    graph = job_of(tmp_path, function)
    with pytest.raises(FunctionUnpicklable) as caught:
        ship(vertices_of(graph), {2: [("map function", function)]})
    error = caught.value
    assert (error.operator, error.role) == ("map", "map function")
    assert culprit in error.culprit
    assert "create it in open()" in str(error)
    assert "lock" in error.problem


class SparkSession:
    """Stands for the session, whose package is not needed here."""

    __module__ = "pyspark.sql.session"


class Broadcast:
    __module__ = "pyspark.core.broadcast"


class UserDefinedFunction:
    __module__ = "pyspark.sql.udf"


class Accumulator:
    __module__ = "pyspark.accumulators"


def refused(tmp_path: Path, function: object) -> str:
    with pytest.raises(FunctionUnpicklable) as caught:
        ship(vertices_of(job_of(tmp_path, function)), {2: [("map function", function)]})
    return str(caught.value)


def holding(thing: object) -> object:
    return lambda value: [thing for _ in range(value)]


@pytest.mark.parametrize(
    ("thing", "advice"),
    [
        (SparkSession(), "read rows as a stream with env.from_dataframe(df) and connect() it"),
        (Broadcast(), "let the function hold its value"),
        (UserDefinedFunction(), "call the function that it was made of, without udf()"),
        (Accumulator(), "count with a counter of get_metrics_group()"),
    ],
)
def test_what_lives_in_sparks_driver_is_refused_with_what_works_instead(
    tmp_path: Path, thing: object, advice: str
) -> None:
    said = refused(tmp_path, holding(thing))
    kind = type(thing).__name__
    where = f"closure variable 'thing' of holding.<locals>.<lambda> (a {kind})"
    assert f"because {where.replace('(a A', '(an A')} cannot be pickled (it lives in" in said
    assert f"the driver); {advice}" in said
    assert "open()" not in said, "it cannot be made there either"
    assert "it lives in the driver" in refused(tmp_path, functools.partial(print, [{"it": thing}]))


class JavaObject:
    __module__ = "py4j.java_gateway"

    def __init__(self) -> None:
        self.lock = threading.RLock()


class Column:
    __module__ = "pyspark.sql.classic.column"

    def __init__(self) -> None:
        self._jc = JavaObject()


def test_what_only_stands_for_an_object_of_the_jvm_is_refused_too(tmp_path: Path) -> None:
    said = refused(tmp_path, holding(Column()))
    assert "attribute '_jc' of Column (a JavaObject), which closure variable 'thing' of" in said
    assert "cannot be pickled (it lives in the driver); do with DataFrames what needs it" in said
    assert "open()" not in said


def test_other_things_of_the_driver_are_named_with_what_to_do(tmp_path: Path) -> None:
    with (
        (tmp_path / "words").open("w") as file,
        socket.socket() as connection,
        closing(sqlite3.connect(tmp_path / "db")) as database,
    ):
        for thing, name, advice in (
            (file, "a TextIOWrapper", "open it in open() and close it in close()"),
            (connection, "a socket", "connect in open() and disconnect in close()"),
            (database, "a Connection", "connect in open() and disconnect in close()"),
            ((n for n in ()), "a generator", "make a list of it"),
            (logging.StreamHandler(), "a StreamHandler", "log with logging.getLogger(name)"),
            (threading.Lock(), "a lock", "create it in open(), or inside of the function"),
        ):
            said = refused(tmp_path, holding(thing))
            where = f"because closure variable 'thing' of holding.<locals>.<lambda> ({name}) cannot"
            assert where in said and advice in said


def test_the_variable_of_the_function_is_named_however_deep_the_culprit_is(tmp_path: Path) -> None:
    said = refused(tmp_path, holding({"a": [Client(threading.Lock())]}))
    assert "attribute 'lock' of Client (a lock), which closure variable 'thing' of holding" in said


def test_a_global_that_only_nested_code_uses_is_found(tmp_path: Path) -> None:
    code = "lock = make()\nmap_it = lambda value: [lock for _ in range(value)]"
    exec(code, names := {"make": threading.Lock, "__name__": "__main__"})
    assert "global variable 'lock' of <lambda> (a lock)" in refused(tmp_path, names["map_it"])


def test_without_roles_the_operator_and_the_culprit_are_named_too(tmp_path: Path) -> None:
    with pytest.raises(FunctionUnpicklable) as caught:
        ship(vertices_of(job_of(tmp_path, Held())))
    assert caught.value.operator == "map"
    assert "attribute 'lock' of Held (a lock)" in caught.value.culprit


def test_code_that_a_worker_cannot_load_is_explained() -> None:
    with pytest.raises(CodeUnloadable, match="module 'nowhere' is not there") as caught:
        unship(b"cnowhere\nthing\n.")
    assert caught.value.module == "nowhere"
    with pytest.raises(CodeUnloadable, match="AttributeError"):
        unship(b"cos\nno_such_function\n.")
    with pytest.raises(CodeUnloadable, match="same system, Python and packages"):
        unship(b"garbage")


def test_the_worker_s_own_names_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "Own", "the worker's", raising=False)
    kind = type("Own", (), {"__module__": "__main__"})
    unship(ship(vertices_of(job_of(tmp_path, functools.partial(isinstance, kind)))))
    assert main.Own == "the worker's"  # type: ignore[attr-defined]


def test_a_changed_class_takes_the_place_of_an_earlier_job_s(tmp_path: Path) -> None:
    main = sys.modules["__main__"]
    try:
        for _ in range(2):
            kind = type("Changing", (), {"__module__": "__main__", "__qualname__": "Changing"})
            graph = job_of(tmp_path, functools.partial(isinstance, kind))
            unship(ship(vertices_of(graph)))
            assert main.Changing is kind  # type: ignore[attr-defined]
            assert type(pickle.loads(pickle.dumps(kind()))) is kind
    finally:
        del main.Changing  # type: ignore[attr-defined]
