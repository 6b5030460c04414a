"""Configuration: keys and values, and the views of it that programs use.

Values keep the type that they were set with; Headgate itself reads their texts, as in a file.
``ConfigOptions`` declares a key with its type and default. Law: an unknown key is kept. The value
of a known key is checked when an environment takes the configuration, and again when a job starts.
"""

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from headgate.base.errors import PlanInvalid, SettingsInvalid
from headgate.base.redaction import redacted, shown_setting
from headgate.base.settings import JobSettings, RuntimeMode
from headgate.plan.stream_graph import MAX_KEY_GROUPS

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[_Value]):
    """Made by ``ConfigOptions``; read and set with ``Configuration.get`` and ``set``."""

    key: str
    parse: Callable[[str], _Value]
    """Raises ValueError if the text is no such value."""
    expected: str
    """What kind of text is expected, for error messages."""
    default: _Value | None = None


class TypedConfigOptionBuilder(Generic[_Value]):
    """An option of which only the default is missing."""

    def __init__(self, key: str, parse: Callable[[str], _Value], expected: str) -> None:
        self._key = key
        self._parse = parse
        self._expected = expected

    def default_value(self, value: _Value) -> ConfigOption[_Value]:
        return ConfigOption(self._key, self._parse, self._expected, value)

    def no_default_value(self) -> ConfigOption[_Value]:
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


AUTO_UIDS = "pipeline.auto-generate-uids"
SNAPSHOT_COMPRESSION = "execution.checkpointing.snapshot-compression"


class RuntimeExecutionMode(Enum):
    """STREAMING sends results while records come, BATCH once at the end of all sources.

    AUTOMATIC is BATCH if all sources end by themselves.
    """

    STREAMING = RuntimeMode.STREAMING
    BATCH = RuntimeMode.BATCH
    AUTOMATIC = RuntimeMode.AUTOMATIC


class Configuration:
    """Settings by key, for instance ``Configuration().set_integer("parallelism.default", 2)``.

    The keys that Headgate knows stand in docs/configuration.md; others are kept as they are.
    """

    def __init__(self, other: "Configuration | None" = None) -> None:
        self._values: dict[str, object] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, str]) -> "Configuration":
        """A configuration of these keys and texts."""
        configuration = cls()
        for key, text in map.items():
            configuration.set_string(key, text)
        return configuration

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The parts of a list as settings hold it: a list of YAML, ``[a, b]``, or ``a;b``."""
        import yaml  # noqa: PLC0415 - only lists need it

        with suppress(yaml.YAMLError):
            parts = yaml.load(value or "", Loader=yaml.BaseLoader)  # all texts: `off` stays `off`
            if isinstance(parts, list):
                return parts
        return value.split(";") if value else []

    def get_string(self, key: str, default_value: str) -> str:
        return _text(self._values[key]) if key in self._values else default_value

    def set_string(self, key: str, value: str) -> "Configuration":
        return self._set(key, str(value))

    def get_integer(self, key: str, default_value: int) -> int:
        return self._read(key, default_value, int, "a whole number")

    def set_integer(self, key: str, value: int) -> "Configuration":
        return self._set(key, int(value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        return self._read(key, default_value, boolean, "true or false")

    def set_boolean(self, key: str, value: bool) -> "Configuration":
        return self._set(key, bool(value))

    def get_float(self, key: str, default_value: float) -> float:
        return self._read(key, float(default_value), float, "a number")

    def set_float(self, key: str, value: float) -> "Configuration":
        return self._set(key, float(value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        return self._read(key, default_value, bytearray.fromhex, "hexadecimal bytes")

    def set_bytearray(self, key: str, value: bytearray) -> "Configuration":
        return self._set(key, bytes(value))

    def get(
        self, option: ConfigOption[_Value], default_value: _Value | None = None
    ) -> _Value | None:
        """What is set for an option, else ``default_value``, else the option's own default."""
        if option.key in self._values:
            return self._read(option.key, option.default, option.parse, option.expected)
        return option.default if default_value is None else default_value

    def set(self, option: ConfigOption[_Value], value: _Value) -> "Configuration":
        return self._set(option.key, value)

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def key_set(self) -> Set[str]:
        return frozenset(self._values)

    def remove_config(self, key: str) -> bool:
        """Whether it was there."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: "Configuration", prefix: str | None = None) -> "Configuration":
        """Take over everything of another configuration, with ``prefix`` before each key."""
        self._values.update({(prefix or "") + key: value for key, value in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Values have the type that they were set with."""
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """Texts of all values, as a file would have them."""
        return {key: _text(value) for key, value in self._values.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return frozenset(self.to_dict().items()).__hash__()

    def __deepcopy__(self, memodict: object = None) -> "Configuration":
        return Configuration(self)

    def __str__(self) -> str:
        return str(redacted(self.to_dict()))

    def __repr__(self) -> str:
        return f"Configuration({redacted(self.to_dict())!r})"

    def _set(self, key: str, value: object) -> "Configuration":
        self._values[key] = value
        return self

    def _read(
        self, key: str, default: _Value, parse: Callable[[str], _Value], expected: str
    ) -> _Value:
        if key not in self._values:
            return default
        text = _text(self._values[key])
        with suppress(ValueError):
            return parse(text)
        raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is not {expected}")


class ExecutionConfig:
    """Settings for all operators of an environment; it writes them to the configuration.

    Two are equal if everything that they hold is.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._parameters: dict[str, str] = {}
        self._without_effect: dict[str, bool] = {}

    def enable_object_reuse(self) -> "ExecutionConfig":
        """Hand on records within a task without copies: faster, but do not change them."""
        self._configuration.set_boolean("pipeline.object-reuse", True)
        return self

    def disable_object_reuse(self) -> "ExecutionConfig":
        self._configuration.set_boolean("pipeline.object-reuse", False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        return self._settings.object_reuse

    def set_auto_watermark_interval(self, interval: int) -> "ExecutionConfig":
        """Milliseconds between two watermarks of a strategy; 0: only at the end of the input."""
        if type(interval) is not int or interval < 0:
            raise PlanInvalid(
                f"set_auto_watermark_interval() was given {interval!r}; give milliseconds, "
                f"0 or more"
            )
        self._configuration.set_integer("pipeline.auto-watermark-interval", interval)
        return self

    def get_auto_watermark_interval(self) -> int:
        return self._settings.watermark_interval_ms

    def set_latency_tracking_interval(self, interval: int) -> "ExecutionConfig":
        """Milliseconds between two latency markers of a source; 0 or less: there are none."""
        self._configuration.set_integer("metrics.latency.interval", max(0, interval))
        return self

    def get_latency_tracking_interval(self) -> int:
        return self._settings.marker_interval_ms

    def set_task_cancellation_timeout(self, timeout: int) -> "ExecutionConfig":
        """Milliseconds for a function to come back from a cancellation; then its process ends."""
        if type(timeout) is not int or timeout < 1:
            raise PlanInvalid(
                f"set_task_cancellation_timeout() was given {timeout!r}; give milliseconds, "
                f"1 or more"
            )
        self._configuration.set_integer("task.cancellation.timeout", timeout)
        return self

    def get_task_cancellation_timeout(self) -> int:
        return self._settings.cancel_timeout_ms

    def set_task_cancellation_interval(self, interval: int) -> "ExecutionConfig":
        """Stored without effect: a function that hangs is interrupted once, by the timeout."""
        self._configuration.set_integer("task.cancellation.interval", interval)
        return self

    def get_task_cancellation_interval(self) -> int:
        """Milliseconds."""
        return self._configuration.get_integer("task.cancellation.interval", 30_000)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> "ExecutionConfig":
        """Stored without effect: snapshots are written uncompressed."""
        self._configuration.set_boolean(SNAPSHOT_COMPRESSION, use_snapshot_compression)
        return self

    def is_use_snapshot_compression(self) -> bool:
        return self._configuration.get_boolean(SNAPSHOT_COMPRESSION, False)

    def enable_auto_generated_uids(self) -> "ExecutionConfig":
        self._configuration.set_boolean(AUTO_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> "ExecutionConfig":
        """Refuse programs in which an operator has no ``uid`` of its own."""
        self._configuration.set_boolean(AUTO_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._settings.auto_uids

    def get_parallelism(self) -> int:
        """-1: not set."""
        return self._settings.parallelism

    def set_parallelism(self, parallelism: int) -> "ExecutionConfig":
        check_parallelism(parallelism, "parallelism", "the environment")
        check_bound(parallelism, self.get_max_parallelism(), "the environment")
        self._configuration.set_integer("parallelism.default", parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1: not set."""
        return self._settings.max_parallelism

    def set_max_parallelism(self, max_parallelism: int) -> "ExecutionConfig":
        check_parallelism(max_parallelism, "maximum parallelism", "the environment")
        check_bound(self.get_parallelism(), max_parallelism, "the environment")
        self._configuration.set_integer("pipeline.max-parallelism", max_parallelism)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters that ``RuntimeContext.get_job_parameter`` reads."""
        return {**_parameters(self._settings.parameters), **self._parameters}

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, object]
    ) -> "ExecutionConfig":
        self._parameters = {key: str(value) for key, value in global_job_parameters_dict.items()}
        return self

    # What only a JVM has: serializers of Java objects, closures of Java functions. The settings
    # are stored, so that programs can set and read them.

    def enable_closure_cleaner(self) -> "ExecutionConfig":
        return self._keep("closure cleaner", True)

    def disable_closure_cleaner(self) -> "ExecutionConfig":
        return self._keep("closure cleaner", False)

    def is_closure_cleaner_enabled(self) -> bool:
        return self._without_effect.get("closure cleaner", True)

    def enable_force_kryo(self) -> "ExecutionConfig":
        return self._keep("force kryo", True)

    def disable_force_kryo(self) -> "ExecutionConfig":
        return self._keep("force kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        return self._without_effect.get("force kryo", False)

    def enable_force_avro(self) -> "ExecutionConfig":
        return self._keep("force avro", True)

    def disable_force_avro(self) -> "ExecutionConfig":
        return self._keep("force avro", False)

    def is_force_avro_enabled(self) -> bool:
        return self._without_effect.get("force avro", False)

    def enable_generic_types(self) -> "ExecutionConfig":
        return self._keep("generic types", True)

    def disable_generic_types(self) -> "ExecutionConfig":
        return self._keep("generic types", False)

    def has_generic_types_disabled(self) -> bool:
        return not self._without_effect.get("generic types", True)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        return []

    def get_registered_pojo_types(self) -> list[str]:
        return []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._contents == other._contents

    def __hash__(self) -> int:
        return self._configuration.__hash__()

    @property
    def _contents(self) -> tuple[Configuration, dict[str, str], dict[str, bool]]:
        return self._configuration, self._parameters, self._without_effect

    def _keep(self, name: str, enabled: bool) -> "ExecutionConfig":
        self._without_effect[name] = enabled
        return self

    @property
    def _settings(self) -> JobSettings:
        return JobSettings.parse(self._configuration.to_dict())


def check_parallelism(number: int, what: str, whose: str) -> None:
    """A parallelism that somebody has set."""
    if type(number) is not int or not 1 <= number <= MAX_KEY_GROUPS:
        raise PlanInvalid(
            f"{whose}: the {what} is {number!r}; give a whole number from 1 to {MAX_KEY_GROUPS}"
        )


def check_bound(parallelism: int, max_parallelism: int, whose: str) -> None:
    """A parallelism and its bound; -1 and None mean that it is not set."""
    if 0 < max_parallelism < parallelism:
        raise PlanInvalid(
            f"{whose}: the parallelism {parallelism} is above the maximum parallelism "
            f"{max_parallelism}; lower one or raise the other"
        )


def _text(value: object) -> str:
    """A value as a file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)


def _parameters(text: str) -> dict[str, str]:
    pairs = [pair.partition(":") for pair in text.split(",") if pair.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}
