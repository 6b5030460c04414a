"""From a user's ``build`` to a program with outputs that can be read.

``build(env)`` returns a stream, several of them in a list or by name, or nothing: then its sinks
are what it is about. It may also execute the program itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from headgate.api.datastream import DataStream
from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.program import Program, build_program
from headgate.api.runtime import runtime_replaced
from headgate.api.sinks import sink_operator
from headgate.base.errors import HarnessMisused
from headgate.host.shipping.code import ship, unship, with_definitions
from headgate.plan.job_graph import JobGraph, JobVertex, build_job_graph
from headgate.plan.stream_graph import StreamGraph
from headgate.testing.runtime import TestingRuntime

Build: TypeAlias = Callable[[StreamExecutionEnvironment], Any]


def built_program(build: Build, runtime: TestingRuntime) -> Program | None:
    """The program that ``build`` has not executed itself; None: there is nothing left."""
    if not callable(build):
        raise HarnessMisused(f"{build!r} cannot be called; give a function build(env)")
    with runtime_replaced(runtime):
        env = StreamExecutionEnvironment()
        try:
            for name, stream in _streams(build(env)):
                _collect(stream, runtime, name)
            draft = env._draft
            if not draft.pending:
                return None
            return build_program(draft, None, draft.pending)
        finally:
            env.close()


def _streams(built: object) -> list[tuple[str, DataStream]]:
    if built is None:
        return []
    if isinstance(built, Mapping):
        return [(str(name), _stream(stream)) for name, stream in built.items()]
    if isinstance(built, Sequence) and not isinstance(built, str):
        return [(f"output {at}", _stream(stream)) for at, stream in enumerate(built, 1)]
    return [("output", _stream(built))]


def _stream(built: object) -> DataStream:
    if hasattr(built, "to_records"):  # of columns, whose module loads pyarrow
        built = built.to_records()
    if isinstance(built, DataStream):
        return built
    raise HarnessMisused(
        f"build() returned a {type(built).__name__}; return a stream, a list or dict of streams, "
        f"or nothing"
    )


def _collect(stream: DataStream, runtime: TestingRuntime, name: str) -> None:
    sink = runtime.output_sink(name)
    end = stream._end(f"Output {name}", sink_operator(sink), "sink", sink)
    end.parallelism = end.max_parallelism = 1
    end.uid = f"output {name}"


def scaled(graph: StreamGraph, parallelism: int | None, timeout_ms: int) -> StreamGraph:
    """The graph with another parallelism where it is not 1, and with a buffer timeout."""
    nodes = {
        number: replace(
            node,
            buffer_timeout_ms=timeout_ms,
            parallelism=node.parallelism
            if parallelism is None or node.parallelism == 1
            else min(parallelism, node.max_parallelism),
        )
        for number, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes, buffer_timeout_ms=timeout_ms)


def planned(
    graph: StreamGraph, inline_functions: bool
) -> tuple[JobGraph, Callable[[], dict[int, JobVertex]]]:
    """The job graph, and what loads its vertices as a worker does, from their pickled code."""
    job_graph = build_job_graph(graph)
    functions = {number: node.functions for number, node in graph.nodes.items()}
    vertices = {vertex.id: vertex for vertex in job_graph.vertices}
    if inline_functions:
        vertices = with_definitions(vertices, functions)
    return job_graph, partial(unship, ship(vertices, functions))
