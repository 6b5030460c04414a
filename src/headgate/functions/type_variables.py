"""Type variables of what programs name: streams, functions, states, windows, sources and sinks.

Law: each of them defaults to Any, so that a class without its parameters, as in programs without
types, stands for any records. Python takes such defaults from 3.13 on. Type checkers take them
already, and know typing_extensions where it is not installed, too.
"""

from typing import TYPE_CHECKING, Any

from headgate.functions.window import Window

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar as _TypeVar

    def TypeVar(name, default, **rest):  # noqa: N802 - it stands for the class of this name
        """Without the default."""
        return _TypeVar(name, **rest)


# Of streams: records, records of a second stream, keys.
T = TypeVar("T", covariant=True, default=Any)
U = TypeVar("U", covariant=True, default=Any)
K = TypeVar("K", covariant=True, default=Any)

# Of functions: what they take and give, and what they are told.
IN = TypeVar("IN", contravariant=True, default=Any)
IN1 = TypeVar("IN1", contravariant=True, default=Any)
IN2 = TypeVar("IN2", contravariant=True, default=Any)
OUT = TypeVar("OUT", covariant=True, default=Any)
KEY = TypeVar("KEY", contravariant=True, default=Any)
WINDOW = TypeVar("WINDOW", contravariant=True, default=Any)

# Of a single method, of values that are read and written, and of the keys of maps of them.
V = TypeVar("V", default=Any)
ACC = TypeVar("ACC", default=Any)
MK = TypeVar("MK", default=Any)

# Windows of assigners, triggers and evictors, and of the contexts of functions.
W = TypeVar("W", bound=Window, default=Any)
W2 = TypeVar("W2", covariant=True, default=Any)
