"""Options: a key of the configuration with its type and default, to be written down once.

::

    CITY = ConfigOptions.key("my.city").string_type().default_value("Ulm")
    env.get_configuration().get(CITY)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """Made by ``ConfigOptions``; read and set with ``Configuration.get`` and ``set``."""

    key: str
    parse: Callable[[str], T]
    """Raises ValueError if the text is no such value."""
    expected: str
    """What the text should have been."""
    default: T | None = None


class TypedConfigOptionBuilder(Generic[T]):
    """An option of which only the default is missing."""

    def __init__(self, key: str, parse: Callable[[str], T], expected: str) -> None:
        self._key = key
        self._parse = parse
        self._expected = expected

    def default_value(self, value: T) -> ConfigOption[T]:
        return ConfigOption(self._key, self._parse, self._expected, value)

    def no_default_value(self) -> ConfigOption[T]:
        return ConfigOption(self._key, self._parse, self._expected)


class OptionBuilder:
    """An option whose type is missing."""

    def __init__(self, key: str) -> None:
        self._key = key

    def boolean_type(self) -> TypedConfigOptionBuilder[bool]:
        return TypedConfigOptionBuilder(self._key, boolean, "true or false")

    def int_type(self) -> TypedConfigOptionBuilder[int]:
        return TypedConfigOptionBuilder(self._key, int, "a whole number")

    def long_type(self) -> TypedConfigOptionBuilder[int]:
        return TypedConfigOptionBuilder(self._key, int, "a whole number")

    def float_type(self) -> TypedConfigOptionBuilder[float]:
        return TypedConfigOptionBuilder(self._key, float, "a number")

    def double_type(self) -> TypedConfigOptionBuilder[float]:
        return TypedConfigOptionBuilder(self._key, float, "a number")

    def string_type(self) -> TypedConfigOptionBuilder[str]:
        return TypedConfigOptionBuilder(self._key, str, "a text")


class ConfigOptions:
    """Where options begin."""

    @staticmethod
    def key(key: str) -> OptionBuilder:
        """Then say its type, then its default."""
        return OptionBuilder(key)


# PyFlink has them inside of the class that they belong to.
ConfigOptions.OptionBuilder = OptionBuilder  # type: ignore[attr-defined]
ConfigOptions.TypedConfigOptionBuilder = TypedConfigOptionBuilder  # type: ignore[attr-defined]


def boolean(text: str) -> bool:
    """True or false, as it is written; raises ValueError."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise ValueError(text)
