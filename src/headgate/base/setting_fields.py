"""How a group of settings is written down: a frozen dataclass whose fields know their keys.

Law: a field knows its key, meaning and lower bound; a text that is no such value is refused with
the key and what would be right. Bytes and milliseconds may have a unit behind the number.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Final, TypeVar

from headgate.base.errors import SettingsInvalid
from headgate.base.redaction import is_secret, shown_setting


def setting(key: str, default: Any, meaning: str, low: float | None = None) -> Any:
    """A field of a dataclass of settings; one that is a secret is not shown with the others."""
    metadata = {"key": key, "meaning": meaning, "low": low}
    return field(default=default, metadata=metadata, repr=not is_secret(key))


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """Base of the groups; each is a frozen dataclass whose fields are made by ``setting``."""

    former_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that Flink had earlier, with those that it has now; the latter count."""

    def __post_init__(self) -> None:
        for f in fields(self):
            low, value = f.metadata["low"], getattr(self, f.name)
            if low is not None and not value >= low:
                raise SettingsInvalid(f.metadata["key"], f"{value} is below {low}")
        self._check()

    def _check(self) -> None:
        """Refuse values within their bounds that cannot work together."""

    @classmethod
    def _spelled_out(cls, texts: dict[str, str]) -> None:
        """Put in what some texts stand for, before they are parsed."""

    @classmethod
    def parse(cls: "type[Settings]", texts: Mapping[str, str]) -> "Settings":
        """Settings from keys and texts; keys of other groups are left alone."""
        given = {new: texts[old] for old, new in cls.former_keys.items() if old in texts}
        given.update(texts)
        cls._spelled_out(given)
        known = {f.metadata["key"]: f for f in fields(cls)}
        values: dict[str, Any] = {
            known[key].name: _parse_value(key, known[key], text.strip())
            for key, text in given.items()
            if key in known
        }
        return cls(**values)

    @classmethod
    def describe(cls) -> list[tuple[str, str, str]]:
        """Key, default and meaning of every setting of the group."""
        rows = []
        for f in fields(cls):
            default = f.default.value if isinstance(f.default, Enum) else f.default
            rows.append((str(f.metadata["key"]), str(default), str(f.metadata["meaning"])))
        return rows


Settings = TypeVar("Settings", bound=SettingsGroup)


_KIB: Final = 1024
_UNITS: Final[dict[str, dict[str, int]]] = {
    "bytes": {
        "kb": _KIB,
        "k": _KIB,
        "mb": _KIB**2,
        "m": _KIB**2,
        "gb": _KIB**3,
        "g": _KIB**3,
        "b": 1,
    },
    "ms": {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
}
"""What may follow a number, by the unit that ends the field's name."""


def _parse_value(key: str, setting: Field[Any], text: str) -> object:
    default = setting.default
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is neither true nor false")
    if isinstance(default, Enum):
        choices = [str(choice.value) for choice in type(default)]
        if text.lower() in choices:
            return type(default)(text.lower())
        raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is none of {', '.join(choices)}")
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is not a number") from None
    if isinstance(default, int):
        return _parse_amount(key, text, _UNITS.get(setting.name.rpartition("_")[2], {}))
    return text


def _parse_amount(key: str, text: str, units: Mapping[str, int]) -> int:
    number = text.lower().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.lower()[len(number) :]
    if not unit or unit in units:
        with suppress(ValueError):
            return int(number) * units.get(unit, 1)
    behind = f", with {', '.join(units)} or nothing behind it" if units else ""
    raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is not a whole number{behind}")
