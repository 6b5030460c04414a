"""What an operator and its user's function know about the task they run in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Names and numbers of one task; the same for all operators of its chain."""

    job: str
    vertex: str
    subtask: int
    parallelism: int
    max_parallelism: int = 128
    attempt: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As people count: ``map (2/4)``."""
        return f"{self.vertex} ({self.subtask + 1}/{self.parallelism})"


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """Handed to ``Operator.open``. ``now_ms`` is wall-clock time since 1970, as users expect it."""

    operator: str
    task: TaskInfo
    now_ms: Callable[[], int]
    later: Callable[[float, Callable[[], None]], object] = lambda delay_ms, action: None
    """Run ``action`` on the task's thread after ``delay_ms``, as a mail."""
