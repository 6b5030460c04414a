"""A program that is ready to run: the graph and all that travels with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.base.errors import PlanInvalid
from headgate.plan.stream_graph import StreamGraph


@dataclass(frozen=True, slots=True)
class Cargo:
    """A file or folder that functions find in their working directory."""

    path: str
    """In the driver."""
    name: str
    """In the workers, within the working directory."""
    unpack: bool = False
    """It is an archive, and ``name`` becomes a folder of what is in it."""
    executable: bool = False

    def __post_init__(self) -> None:
        parts = self.name.split("/")
        if not all(parts) or ".." in parts:
            raise PlanInvalid(
                f"{self.path!r} shall be called {self.name!r} in the workers; give a name within "
                f"the working directory, without / in front and without .."
            )

    @classmethod
    def archive(cls, path: str, target: str | None = None) -> "Cargo":
        """An archive, unpacked into a folder with the target's or its own name."""
        return cls(path, target or path.rstrip("/").rpartition("/")[2], unpack=True)


@dataclass(frozen=True, slots=True)
class Program:
    """What an environment hands to the outside."""

    graph: StreamGraph
    name: str
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every key that was set, also those that nobody knows."""
    python_files: tuple[str, ...] = ()
    """Files and folders that the workers must be able to import."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """For ``RuntimeContext.get_job_parameter``."""
    cargo: tuple[Cargo, ...] = ()
    requirements: tuple[str, str | None] | None = None
    """A file that pip reads, and a folder with all packages or None."""
