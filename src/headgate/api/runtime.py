"""The runtime: the seam to what runs programs, in rooms above the API that it does not know.

The package itself, ``headgate/__init__.py``, says how to open it. Nothing is imported before it is
used, so that ``import headgate`` stays quick and programs can be written where no Spark is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headgate.api.job import RunningJob
    from headgate.api.program import Program
    from headgate.functions.function import SourceFunction
    from headgate.functions.sink import Sink
    from headgate.functions.source import Source


class Results(Iterator[object], Protocol):
    """Records of a running job, in the order of their arrival; raises what made the job fail."""

    def close(self) -> None:
        """Nobody wants the rest: cancel the job if it runs; idempotent."""

    def abandon(self) -> None:
        """Cancel the job if it runs, without waiting for its end."""


class Runtime(Protocol):
    """Runs programs, and brings data in and out.

    ``node`` is the id of the sink node in ``program.graph`` that was made with the sink from here;
    the sink itself stands in ``program.graph.nodes[node].functions`` with the role "sink".
    """

    def settings(self) -> Mapping[str, str]:
        """Settings of flags, environment variables and files; new environments begin with them."""

    def default_parallelism(self, configuration: Mapping[str, str]) -> int:
        """The parallelism of operators that set none, in an environment that sets none."""

    def launch(self, program: "Program") -> "RunningJob":
        """Start it; does not wait for its end."""

    def collect_sink(self) -> "Sink":
        """A sink of parallelism 1 for ``collect``."""

    def collect(self, program: "Program", node: int) -> Results:
        """Start it and bring what comes to the sink."""

    def dataframe_sink(self, schema: object, as_batches: bool = False) -> "Sink":
        """A sink for ``to_dataframe``, of records or of Arrow batches."""

    def to_dataframe(self, program: "Program", node: int, schema: object) -> object:
        """A lazy DataFrame of what would come to the sink; each action on it runs the program."""

    def dataframe_source(
        self, dataframe: object, order_by: Sequence[str], partition_by: Sequence[str]
    ) -> "Source":
        """The rows of a DataFrame, in an order if one is given."""

    def arrow_source(self, table: object) -> "Source":
        """The batches of a table of pyarrow; has its ``schema``."""

    def arrow_schema(self, schema: object, caller: str) -> Any:
        """A schema of pyarrow, of Headgate's types, or in Spark's words, as pyarrow has it."""

    def row_maker(self) -> Callable[[Sequence[str]], Any]:
        """Given the names of columns: what makes rows of Arrow batches by ``rows``."""

    def batch_maker(self, schema: Any) -> "Callable[[str], Callable[[list[object]], Any]]":
        """Given the name of an operator: what makes an Arrow batch of records."""

    def streaming_source(self, dataframe: object, name: str) -> "Source":
        """The rows of a streaming DataFrame, whose query runs with the job."""

    def streaming_frame(
        self, schema: object, name: str, configuration: Mapping[str, str]
    ) -> "tuple[Sink, object]":
        """A sink, and a streaming DataFrame of what comes to it."""

    def function_source(self, function: "SourceFunction[object]") -> "Source":
        """Runs a user's source function."""

    def job_html(self, job: "RunningJob") -> str:
        """A job that was launched here as it is now, for a notebook."""

    def print_sink(self, sink_identifier: str | None) -> "Sink":
        """Prints records where the user can see them."""


class _Hook:
    opener: Callable[[], Runtime] | None = None
    opened: Runtime | None = None
    parallelism: int | None = None


def set_runtime(opener: Callable[[], Runtime]) -> None:
    """Say how to open it; called once by the package, and by tests that bring their own."""
    _Hook.opener = staticmethod(opener)
    _Hook.opened = None


def runtime() -> Runtime:
    """The runtime of this process; opened when it is first used."""
    if _Hook.opened is None:
        assert _Hook.opener is not None, "headgate/__init__.py says how to open the runtime"
        _Hook.opened = _Hook.opener()
    return _Hook.opened


@contextmanager
def runtime_replaced(by: Runtime) -> Iterator[None]:
    """For a while programs of this process are run by another runtime."""
    opened, parallelism = _Hook.opened, _Hook.parallelism
    _Hook.opened, _Hook.parallelism = by, None
    try:
        yield
    finally:
        _Hook.opened, _Hook.parallelism = opened, parallelism


def set_default_parallelism(parallelism: int | None) -> None:
    """For all environments that set none; None: what the runtime has to offer."""
    _Hook.parallelism = parallelism


def default_parallelism(configuration: Mapping[str, str]) -> int:
    """The parallelism of operators that set none, in an environment that sets none."""
    return _Hook.parallelism or runtime().default_parallelism(configuration)
