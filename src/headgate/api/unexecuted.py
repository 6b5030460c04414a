"""What the programs of this process have written and not executed: a forgotten ``execute()``.

It knows drafts by their numbers, so that a program that nobody needs any more can go.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Unexecuted:
    """Of the whole process."""

    has_executed: bool = False
    """A job was launched, or a DataFrame was made."""
    _drafts: set[int] = field(default_factory=set)
    """Those with operators that wait for their execution."""
    _with_sinks: set[int] = field(default_factory=set)

    def written(self, draft: int, is_sink: bool) -> None:
        """An operator waits for its execution."""
        self._drafts.add(draft)
        if is_sink:
            self._with_sinks.add(draft)

    def forgotten(self, draft: int) -> None:
        """Whatever a draft had waiting was executed or dropped."""
        self._drafts.discard(draft)
        self._with_sinks.discard(draft)

    def clear(self) -> None:
        """As if the process had just begun."""
        self.has_executed = False
        self._drafts.clear()
        self._with_sinks.clear()

    def problem(self) -> str:
        """What to say at the end of the process; empty: nothing is left over."""
        if self._drafts and not self.has_executed:
            return (
                "streams were written, but nothing was executed; call env.execute() at the end of "
                "the program"
            )
        if self._with_sinks:
            return (
                "a stream was given a sink after the last execution, and never ran; call "
                "env.execute() once more at the end of the program"
            )
        return ""


unexecuted = Unexecuted()
