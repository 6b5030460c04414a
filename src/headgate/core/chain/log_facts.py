"""Which job, task and operator the code that runs here belongs to, for its log lines.

The task is told by a context variable, which threads of a task and coroutines in it share, the
operator by the stack: whoever calls a user's function is on it. A process that works for one job
alone knows at least that job, whatever thread logs. Nothing of this costs anything where nothing is
logged.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Final, Protocol

from headgate.base.redaction import without_secrets
from headgate.core.chain.context import OperatorContext
from headgate.functions.context import TaskInfo

SHOWN_FACTS: Final = ("job", "operator", "task", "subtask", "attempt", "slot", "host")
"""In the order in which a line shows them."""
FACTS: Final = ("job_id", *SHOWN_FACTS)
MOST_FRAMES: Final = 100
NETWORK_LOGGERS: Final = frozenset(
    f"headgate.host.net.{module}" for module in ("connection", "exchange", "listener", "loop")
)
"""Whichever task holds the baton serves the network for all: its lines are nobody's own."""


class Formattable(Protocol):
    """A record of the standard library's logging."""

    msg: object

    def getMessage(self) -> str:  # noqa: N802 - as it is called there
        """The message with its arguments."""


_here: ContextVar[Mapping[str, object] | None] = ContextVar("headgate_log_facts", default=None)
_of_process: dict[str, object] = {}


@contextmanager
def logged_with(facts: Mapping[str, object]) -> Iterator[None]:
    """Lines that are logged meanwhile, by this thread or in a copy of its context, have these."""
    token = _here.set({**(_here.get() or {}), **facts})
    try:
        yield
    finally:
        _here.reset(token)


def log_always_with(facts: Mapping[str, object]) -> None:
    """Give lines these facts as long as this thread runs, or for good in this context."""
    _here.set({**(_here.get() or {}), **facts})


def process_works_for(facts: Mapping[str, object] | None) -> None:
    """All lines of this process belong to one job; None: not any more."""
    if facts is None:
        _of_process.clear()
    else:
        _of_process.update(facts)


def facts_of_task(task: TaskInfo) -> dict[str, object]:
    """What lines of a task say."""
    return {
        "job": task.job,
        "task": task.vertex,
        "subtask": task.subtask,
        "attempt": task.attempt,
    }


def facts_here(frame: FrameType | None, logger: str = "") -> dict[str, object]:
    """What is known about who logs; ``frame`` is the innermost one of interest."""
    if logger in NETWORK_LOGGERS:
        return dict(_of_process)
    facts = {**_of_process, **(_here.get() or {})}
    context = _context_of(frame)
    if context is not None:
        facts |= {**facts_of_task(context.task), "operator": context.operator}
    if "task" in facts:
        facts.pop("slot", None)  # the task says more
    return facts


def message_of(record: Formattable) -> str:
    """Its message without secrets; if it cannot be formatted, as it was given, with the reason."""
    try:
        return without_secrets(record.getMessage())
    except Exception as error:
        try:
            problem = f"its arguments do not fit: {type(error).__name__}: {error}"
            return without_secrets(f"{record.msg!r} ({problem})")
        except Exception:
            return f"a message that cannot be shown ({type(error).__name__})"


def _context_of(frame: FrameType | None) -> OperatorContext | None:
    """The context of the innermost operator that is at work on this thread."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        owner = frame.f_locals.get("self")
        for context in (_part(owner, "context"), _part(owner, "_context")):
            if isinstance(context, OperatorContext):
                return context
        frame = frame.f_back
    return None


def _part(owner: object, name: str) -> object:
    """An attribute that the object itself has: a property of a user's may log, too, or wait."""
    try:
        return dict.get(object.__getattribute__(owner, "__dict__"), name)
    except Exception:  # it has slots, or hides what it has
        return None
