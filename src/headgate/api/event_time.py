"""What a program says about event time before it runs: which streams surely have none.

Law: the answer errs on the safe side. Only a stream that can have no timestamps, whatever its
functions do, is called untimed; a source or function that is not known may bring some.
"""

from typing import Final

from headgate.api.datastream import DataStream
from headgate.api.draft import Step

_KEEP_TIMES: Final = frozenset(
    {"map function", "flat map function", "filter function", "fields", "position"}
    | {"reduce function", "process function", "watermark strategy"}
)
"""Roles of functions whose operators send records with the times they came with."""


def surely_untimed(stream: DataStream) -> bool:
    """Whether no record of the stream can have a timestamp: event-time windows would fail."""
    untimed: dict[int, bool] = {}
    for step in _upstream([origin.step for origin in stream._origins]):
        untimed[step.id] = not step.assigns_times and (
            _brings_none(step) if step.source is not None else _keeps_none(step, untimed)
        )
    return all(untimed[origin.step.id] for origin in stream._origins)


def _upstream(steps: list[Step]) -> list[Step]:
    """These steps and all that they read; a step comes behind those it reads."""
    found: dict[int, Step] = {}
    while steps:
        step = steps.pop()
        if step.id not in found:
            found[step.id] = step
            steps += [origin.step for origins in step.inputs for origin in origins]
    return [found[number] for number in sorted(found)]


def _brings_none(step: Step) -> bool:
    return bool(getattr(step.source, "untimed", False))


def _keeps_none(step: Step, untimed: dict[int, bool]) -> bool:
    if not step.inputs or not all(_keeps_times(*function) for function in step.functions):
        return False
    return all(untimed[origin.step.id] for origins in step.inputs for origin in origins)


def _keeps_times(role: str, function: object) -> bool:
    # What a timer sends has the timer's time.
    return role in _KEEP_TIMES and not hasattr(function, "on_timer")
