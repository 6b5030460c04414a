"""A program that is ready to run: the graph and all that travels with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.plan.stream_graph import StreamGraph


@dataclass(frozen=True, slots=True)
class Program:
    """What an environment hands to the outside."""

    graph: StreamGraph
    name: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    """Every key that was set, also those that nobody knows."""
    python_files: tuple[str, ...] = ()
    """Files and folders that the workers must be able to import."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """For ``RuntimeContext.get_job_parameter``."""
