"""All mutants, by what they are about."""

from tests.mutants.buffers import BUFFERS
from tests.mutants.calls import CALLS
from tests.mutants.checkpoints import CHECKPOINTS
from tests.mutants.event_time import EVENT_TIME
from tests.mutants.mutant import Mutant
from tests.mutants.operators import OPERATORS
from tests.mutants.recovery import RECOVERY
from tests.mutants.state import STATE
from tests.mutants.wire import WIRE

CHAPTERS: dict[str, tuple[Mutant, ...]] = {
    "Buffers and flow control": BUFFERS,
    "The wire": WIRE,
    "Checkpoints": CHECKPOINTS,
    "Recovery": RECOVERY,
    "State and timers": STATE,
    "Event time and windows": EVENT_TIME,
    "Operators and columns": OPERATORS,
    "Calls": CALLS,
}

MUTANTS = tuple(mutant for chapter in CHAPTERS.values() for mutant in chapter)
