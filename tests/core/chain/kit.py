"""What the tests of chains are made of: an output that keeps what it is given, and a loan that
insists on its law.

`run` drives one operator through its whole life; `open_operator` leaves it to the test.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.outputs import Loan
from headgate.core.chain.spec import ChainSpec, OperatorSpec
from headgate.core.chain.user_function import StatefulOperator
from headgate.core.loops.definitions import Definition
from headgate.functions.context import TaskInfo
from headgate.host.shipping.code import with_definitions
from headgate.plan.job_graph import JobVertex

NOW_MS = 1_700_000_000_000

atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
immutables = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=10,
)
"""Records as users make them, mutable ones too."""


class KeptOutput:
    """An output that keeps everything, in order."""

    takes_fields: Callable[..., bool] = staticmethod(lambda *asked: False)

    def __init__(self) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.bundles: list[Bundle] = []
        self.side: list[tuple[str, Bundle]] = []
        self.elements: list[Any] = []

    @property
    def records(self) -> list[Any]:
        return [record for bundle in self.bundles for record in bundle.records]

    @property
    def timed(self) -> list[tuple[Any, int | None]]:
        return [
            pair
            for bundle in self.bundles
            for pair in zip(
                bundle.records,
                bundle.timestamps or [None] * len(bundle.records),
                strict=True,
            )
        ]

    def side_records(self, tag: str) -> list[Any]:
        return [record for name, bundle in self.side if name == tag for record in bundle.records]

    def collect(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self.side.append((tag, bundle))

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        self.elements.append(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        self.elements.append(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self.elements.append(marker)


class StrictLoan(Loan):
    """The baton of a test with one thread: it is lent and regained in turns, or the test fails."""

    def __init__(self, lent: bool = False) -> None:
        self.lent = lent
        self.loans = 0

    def lend(self) -> None:
        assert not self.lent, "lent twice"
        self.lent = True
        self.loans += 1

    def regain(self) -> None:
        self.lent = False


class HandClock:
    """A clock that stands until it is moved; ``mails`` are what was asked for later."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms
        self.mails: list[tuple[float, Callable[[], None]]] = []
        self.asked = 0

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.asked += 1
        self.mails.append((self.now_ms + delay_ms, action))

    def move_to(self, now_ms: int) -> None:
        """Run what is due on the way, at its time."""
        while due := [mail for mail in self.mails if mail[0] <= now_ms]:
            first = min(due, key=lambda mail: mail[0])
            self.mails.remove(first)
            self.now_ms = max(self.now_ms, int(first[0]))
            first[1]()
        self.now_ms = now_ms

    def context(self, name: str = "op") -> OperatorContext:
        return OperatorContext(name, TaskInfo("job", "vertex", 0, 1), self._read, self.later)

    def _read(self) -> int:
        return self.now_ms


def context(name: str = "op", subtask: int = 0, parallelism: int = 1) -> OperatorContext:
    info = TaskInfo("job", "vertex", subtask, parallelism, parameters={"colour": "red"})
    return OperatorContext(name, info, lambda: NOW_MS)


def open_operator(
    operator: Operator,
    reuse: bool = False,
    within: OperatorContext | None = None,
    output: KeptOutput | None = None,
) -> KeptOutput:
    """The operator, ready for elements; answers with its output."""
    output = output or KeptOutput()
    operator.reuses_objects = reuse
    operator.set_up(output)
    operator.open(with_sources(operator, within or context()))
    return output


def with_sources(operator: Operator, opened: OperatorContext) -> OperatorContext:
    """The context with the source of the operator's functions, if these are to be inlined."""
    if not INLINING["on"] or not isinstance(operator, StatefulOperator):
        return opened
    definitions = [
        definition
        for function in operator.user_functions()
        for definition in definitions_of(function.function)
    ]
    return replace(opened, definitions=tuple(definitions))


INLINING = {"on": False}
"""Whether operators know the source of their functions, as on workers."""


def definitions_of(function: object) -> list[Definition]:
    """What the driver would ship of the source of a function."""
    vertex = with_definitions({0: vertex_of(0)}, {0: [("function", function)]})[0]
    return list(vertex.chain.operators[0].definitions)


def vertex_of(operator: int) -> JobVertex:
    """Nothing but an operator with this id."""
    chain = ChainSpec((OperatorSpec(operator, "op", "op", Operator),))
    return JobVertex(0, "vertex", chain, 1, 128, "default", (), False)


def run(operator: Operator, bundles: Iterable[Bundle], number: int = 0) -> KeptOutput:
    """A whole life on one input."""
    output = open_operator(operator)
    for bundle in bundles:
        operator.process(bundle, number)
    for number in range(operator.inputs):
        operator.end_input(number)
    operator.finish()
    operator.close()
    return output


def cut(
    records: list[Any], sizes: Iterable[int], times: list[int | None] | None = None
) -> list[Bundle]:
    """The records in bundles of these sizes; the rest in the last one."""
    bundles, start = [], 0
    for size in [*sizes, len(records)]:
        part = records[start : start + size]
        if part:
            bundles.append(Bundle(part, None if times is None else times[start : start + size]))
        start += size
    return bundles


def spoil(value: Any) -> None:
    """Change everything in the value that can be changed."""
    if isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoiled")
    elif isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoiled"] = True
    elif isinstance(value, tuple):
        for item in value:
            spoil(item)


class LoggingOperator(Operator):
    """Forwards everything and keeps a log that it shares with its neighbours."""

    def __init__(self, log: list[str], name: str, fails_in: str = "") -> None:
        self._log = log
        self._name = name
        self._fails_in = fails_in

    def set_up(self, output: Any) -> None:
        super().set_up(output)
        self._note("set up")

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._note("open")

    def process(self, bundle: Bundle, number: int) -> None:
        self._note("process")
        self.output.collect(bundle)

    def end_input(self, number: int) -> None:
        self._note(f"end input {number}")

    def finish(self) -> None:
        self._note("finish")
        self.output.collect(Bundle([f"last of {self._name}"]))

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self._log.append(f"{self._name} {what}")
        if self._fails_in == what:
            raise ValueError(f"{what} of {self._name}")


class StubRetryStrategy:
    """Allows ``attempts`` more attempts; ``result`` and ``error`` are its predicates."""

    def __init__(self, attempts: int, result: Any = None, error: Any = None) -> None:
        self.attempts, self.result, self.error = attempts, result, error
        self.asked: list[int] = []

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self.attempts

    def get_backoff_time_millis(self, current_attempts: int) -> float:
        self.asked.append(current_attempts)
        return 10.0 * current_attempts

    def get_retry_predicate(self) -> "StubRetryStrategy":
        return self

    def result_predicate(self) -> Any:
        return self.result

    def exception_predicate(self) -> Any:
        return self.error
