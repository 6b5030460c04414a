"""``headgate plan job.py``: what would run, without running it.

The script runs until it executes something for the first time; there it is stopped, and the plan of
what it wanted to execute is shown. No Spark session is started.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import click

from headgate.api.program import Program
from headgate.api.runtime import set_runtime
from headgate.cli.run import ARGUMENTS, DEFINE, PARALLELISM, SCRIPT, flags_of
from headgate.cli.user_program import exit_code_of, run_script, show_error
from headgate.plan.drawing import draw_svg
from headgate.plan.execution_graph import build_execution_graph, place
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import StreamGraph, execution_plan_json, stable_uids
from headgate.plan.table import aligned
from headgate.spark.configuration import check_known, given_settings, set_flags
from headgate.spark.runtime import SparkRuntime

STAGES: Final = ("stream", "job", "tasks", "slots")
UIDS: Final = "uids"


@click.command()
@SCRIPT
@ARGUMENTS
@PARALLELISM
@DEFINE
@click.option(
    "--stage",
    type=click.Choice([*STAGES, UIDS, "all"]),
    default="all",
    show_default=True,
    help="Operators, vertices, tasks with their partitions, or slots; all of these; or the uids by "
    "which operators find their state.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the operators as JSON, nothing else.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True), help="Draw it to this file.")
def plan(
    script: str,
    arguments: tuple[str, ...],
    defines: tuple[str, ...],
    stage: str,
    as_json: bool,
    svg: str | None,
) -> int:
    """Show the graph of a program: headgate plan job.py -- arguments of its own."""
    set_flags(flags_of(defines))
    check_known(given_settings())
    try:
        graph = graph_of(script, arguments)
        if as_json:
            click.echo(execution_plan_json(graph))
        else:
            click.echo("\n".join(describe(graph, STAGES if stage == "all" else (stage,))), nl=False)
        if svg:
            draw(graph, svg)
    except click.ClickException:
        raise
    except Exception as error:
        show_error(error, script)
        return exit_code_of(error)
    return 0


def draw(graph: StreamGraph, svg: str) -> None:
    """Write the picture to this file."""
    picture = draw_svg(build_job_graph(graph))
    try:
        Path(svg).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(
            f"{svg} cannot be written: {error.strerror}", param_hint="--svg"
        ) from error
    click.echo(f"drawn to {svg}", err=True)


def graph_of(script: str, arguments: Sequence[str]) -> StreamGraph:
    """Run the script up to its first execution. What it prints goes to standard error."""
    set_runtime(PlanningRuntime)
    try:
        with redirect_stdout(sys.stderr):
            run_script(script, arguments)
    except PlanTaken as taken:
        return taken.program.graph
    except SystemExit as end:
        raise click.ClickException(f"{script} has ended with exit({end.code!r})") from end
    raise click.ClickException(f"{script} has ended and executed nothing")


def describe(graph: StreamGraph, stages: Sequence[str]) -> list[str]:
    """The plan in words, a text for each stage."""
    job_graph = build_job_graph(graph)
    texts: dict[str, Callable[[], str]] = {
        "stream": graph.describe,
        "job": job_graph.describe,
        "tasks": build_execution_graph(job_graph, graph.job_name, 0).describe,
        "slots": place(job_graph).describe,
        UIDS: partial(describe_uids, graph),
    }
    return [texts[stage]() for stage in stages]


def describe_uids(graph: StreamGraph) -> str:
    """A line for each operator: the uid that finds its state, and where it comes from."""
    uids = stable_uids(graph)
    rows = [
        (str(node.id), node.title, uids[node.id], "uid()" if node.uid else "its place")
        for node in graph.in_order()
    ]
    return f"uids of {graph.job_name!r}\n" + aligned(("node", "operator", "uid", "by"), rows)


class PlanTaken(BaseException):
    """Ends the script; no ``except Exception`` of the user's catches it."""

    def __init__(self, program: Program) -> None:
        super().__init__("the plan was taken")
        self.program = program


class PlanningRuntime(SparkRuntime):
    """Executes nothing."""

    def launch(self, program: Program) -> NoReturn:
        raise PlanTaken(program)

    def collect(self, program: Program, node: int) -> NoReturn:
        raise PlanTaken(program)

    def to_dataframe(self, program: Program, node: int, schema: object) -> NoReturn:
        raise PlanTaken(program)
