"""Settings of a job and of the data exchange: names, defaults, bounds.

Keys are Flink's where the meaning is the same. ``JobSettings.parse`` and ``ExchangeSettings.parse``
take texts as they stand in a file or on a command line; a wrong value is refused with its key and
what would be right.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any, Final, TypeVar

from headgate.base.errors import SettingsInvalid

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
MAX_PORT: Final = 65_535


class RuntimeMode(str, Enum):
    """Whether results come while records do, or once at the end."""

    STREAMING = "streaming"
    BATCH = "batch"
    AUTOMATIC = "automatic"


class ProgressShown(str, Enum):
    """Whether the terminal shows how a running job gets on."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class FlowControl(str, Enum):
    """What stops a sender: the credit of each channel, or the socket of the whole connection."""

    CREDIT = "credit"
    TCP = "tcp"


class Compression(str, Enum):
    """What is done to buffers that become smaller by it."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Storage(str, Enum):
    """Where a blocking partition keeps its data until it is read."""

    FILE = "file"
    MMAP = "mmap"
    FILE_MMAP = "file-mmap"


class TransportKind(str, Enum):
    """Which system call watches the sockets."""

    AUTO = "auto"
    EPOLL = "epoll"
    POLL = "poll"


def _setting(key: str, default: Any, meaning: str, low: float | None = None) -> Any:
    return field(default=default, metadata={"key": key, "meaning": meaning, "low": low})


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How a program becomes a job. What it sets itself comes before these."""

    parallelism: int = _setting(
        "parallelism.default",
        -1,
        "Parallelism of operators that set none; -1: the cores that Spark has, 4 at most.",
        -1,
    )
    max_parallelism: int = _setting(
        "pipeline.max-parallelism",
        -1,
        "Key groups, which bound the parallelism; -1: 128, or more for a large parallelism.",
        -1,
    )
    runtime_mode: RuntimeMode = _setting(
        "execution.runtime-mode",
        RuntimeMode.STREAMING,
        "`streaming`, `batch`, or `automatic`: batch if all sources end.",
    )
    chaining: bool = _setting(
        "pipeline.operator-chaining.enabled", True, "Operators may share a task."
    )
    object_reuse: bool = _setting(
        "pipeline.object-reuse", False, "Operators of a task hand on records without copying them."
    )
    name: str = _setting("pipeline.name", "", "The job's name if `execute` is given none.")
    parameters: str = _setting(
        "pipeline.global-job-parameters", "", "For `get_job_parameter`: `name:value,name:value`."
    )
    python_files: str = _setting(
        "python.files",
        "",
        "Modules, package folders and zips that all workers get; commas between them.",
    )
    cancel_timeout_ms: int = _setting(
        "task.cancellation.timeout",
        30_000,
        "Milliseconds for a user's function to come back after a cancellation or a failure "
        "elsewhere; then its process is ended.",
        1,
    )
    metrics_interval_ms: int = _setting(
        "metrics.interval", 1_000, "Milliseconds between two reports of figures to the driver.", 10
    )
    marker_interval_ms: int = _setting(
        "metrics.latency.interval",
        0,
        "Milliseconds between two latency markers of a source; 0 sends none.",
        0,
    )
    control_port: int = _setting(
        "jobmanager.rpc.port",
        0,
        "The driver's port for task managers; 0 takes a free one. The first job opens it.",
        0,
    )
    results_port: int = _setting(
        "jobmanager.results.port",
        0,
        "The driver's port for records that are printed or collected there; 0 takes a free one.",
        0,
    )
    progress: ProgressShown = _setting(
        "headgate.progress",
        ProgressShown.AUTO,
        "How a job gets on, on standard error: `on`, `off`, or `auto`: `headgate run` shows it.",
    )

    def __post_init__(self) -> None:
        _check_bounds(self)
        for key, value in (
            ("parallelism.default", self.parallelism),
            ("pipeline.max-parallelism", self.max_parallelism),
        ):
            if value == 0:
                raise SettingsInvalid(key, "0 is below 1; -1 leaves the choice to Headgate")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "JobSettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        return _parse(cls, texts)


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """One task manager's exchange. Every field knows its key, meaning and lower bound."""

    segment_bytes: int = _setting(
        "taskmanager.memory.segment-size", 32 * KIB, "Bytes of one buffer.", 1
    )
    memory_fraction: float = _setting(
        "taskmanager.memory.network.fraction", 0.1, "Share of the worker's memory for buffers.", 0
    )
    memory_min_bytes: int = _setting(
        "taskmanager.memory.network.min", 64 * MIB, "Never fewer bytes of buffers than this.", 1
    )
    memory_max_bytes: int = _setting(
        "taskmanager.memory.network.max",
        GIB,
        "Never more bytes of buffers than this; raising the fraction alone has no effect beyond.",
        1,
    )
    buffers_per_channel: int = _setting(
        "taskmanager.network.memory.buffers-per-channel",
        2,
        "Exclusive buffers of an input channel; 0 makes it live on floating buffers alone.",
        0,
    )
    floating_per_gate: int = _setting(
        "taskmanager.network.memory.floating-buffers-per-gate",
        8,
        "Buffers that the channels of a gate share, by backlog.",
        0,
    )
    overdraft_buffers: int = _setting(
        "taskmanager.network.memory.max-overdraft-buffers-per-gate",
        5,
        "Buffers beyond its limit that a partition may take so that a begun step can end.",
        0,
    )
    landing_buffers: int = _setting(
        "exchange.landing-buffers",
        24,
        "Buffers of a connection that incoming bytes are scattered into, one system call for all.",
        1,
    )
    burst_frames: int = _setting(
        "exchange.burst-frames", 24, "Frames handed to the socket in one system call.", 1
    )
    flow_control: FlowControl = _setting(
        "exchange.flow-control", FlowControl.CREDIT, "`credit`, or `tcp` to compare with."
    )
    compression: Compression = _setting(
        "exchange.compression", Compression.NONE, "`none`, `lz4` or `zstd`, for data buffers."
    )
    buffer_timeout_ms: int = _setting(
        "execution.buffer-timeout.interval",
        100,
        "Flush period; 0: after every record, -1: only full buffers.",
        -1,
    )
    backoff_initial_ms: int = _setting(
        "taskmanager.network.request-backoff.initial",
        100,
        "First pause before a partition that was not found is asked for again.",
        0,
    )
    backoff_max_ms: int = _setting(
        "taskmanager.network.request-backoff.max",
        10_000,
        "Longest such pause; after it the error is raised.",
        0,
    )
    max_element_bytes: int = _setting(
        "exchange.max-element-bytes", GIB + MIB, "Longest element a channel accepts.", 1
    )
    max_event_bytes: int = _setting(
        "exchange.max-event-bytes", MIB, "Longest event a channel accepts.", 64
    )
    spill_bytes: int = _setting(
        "exchange.spill-bytes", 5 * MIB, "Longer spanning elements are gathered on disk.", 1
    )
    storage: Storage = _setting(
        "taskmanager.network.blocking-shuffle.type",
        Storage.FILE_MMAP,
        "Where blocking partitions keep data: `file`, `mmap` or `file-mmap`.",
    )
    bind_host: str = _setting("taskmanager.bind-host", "127.0.0.1", "Address the data port binds.")
    bind_port: int = _setting("taskmanager.data.port", 0, "The data port; 0 takes a free one.", 0)
    transport: TransportKind = _setting(
        "exchange.transport", TransportKind.AUTO, "`epoll`, `poll` (any Unix), or `auto`."
    )
    connect_timeout_ms: int = _setting(
        "exchange.connect-timeout", 10_000, "Longest wait for a connection and its handshake.", 1
    )
    accept_backlog: int = _setting(
        "exchange.accept-backlog",
        128,
        "Connections that may wait to be accepted, and as many again to be proven.",
        1,
    )
    socket_buffer_bytes: int = _setting(
        "exchange.socket-buffer-bytes", 0, "Kernel's send and receive buffers; 0: as it likes.", 0
    )
    heartbeat_interval_ms: int = _setting(
        "heartbeat.interval", 5_000, "A connection that is quiet this long sends a sign of life.", 1
    )
    heartbeat_timeout_ms: int = _setting(
        "heartbeat.timeout", 50_000, "A peer that is quiet this long is given up.", 1
    )
    tls_enabled: bool = _setting(
        "security.ssl.internal.enabled", False, "Mutual TLS between task managers."
    )
    tls_certificate: str = _setting(
        "security.ssl.internal.certificate", "", "PEM file: this worker's certificate."
    )
    tls_key: str = _setting("security.ssl.internal.key", "", "PEM file: its private key.")
    tls_authority: str = _setting(
        "security.ssl.internal.authority", "", "PEM file: who must have signed the peers'."
    )

    def __post_init__(self) -> None:
        _check_bounds(self)
        if self.memory_fraction >= 1:
            raise SettingsInvalid(
                "taskmanager.memory.network.fraction", f"{self.memory_fraction} is not below 1"
            )
        if self.segment_bytes > self.memory_max_bytes:
            raise SettingsInvalid(
                "taskmanager.memory.segment-size",
                f"{self.segment_bytes} is above taskmanager.memory.network.max "
                f"({self.memory_max_bytes}), so that there would be no buffer",
            )
        if self.memory_min_bytes > self.memory_max_bytes:
            raise SettingsInvalid(
                "taskmanager.memory.network.min",
                f"{self.memory_min_bytes} is above taskmanager.memory.network.max "
                f"({self.memory_max_bytes})",
            )
        if self.backoff_initial_ms > self.backoff_max_ms:
            raise SettingsInvalid(
                "taskmanager.network.request-backoff.initial",
                f"{self.backoff_initial_ms} is above the maximum {self.backoff_max_ms}",
            )
        if self.buffers_per_channel == 0 and self.floating_per_gate == 0:
            raise SettingsInvalid(
                "taskmanager.network.memory.floating-buffers-per-gate",
                "must be at least 1 when channels have no exclusive buffers",
            )

        if self.heartbeat_timeout_ms < self.heartbeat_interval_ms:
            raise SettingsInvalid(
                "heartbeat.timeout",
                f"{self.heartbeat_timeout_ms} is below heartbeat.interval "
                f"({self.heartbeat_interval_ms}), so that every quiet peer would be given up",
            )
        if self.bind_port > MAX_PORT:
            raise SettingsInvalid("taskmanager.data.port", f"{self.bind_port} is above {MAX_PORT}")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "ExchangeSettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        return _parse(cls, texts)

    @property
    def low_water_bytes(self) -> int:
        """A connection below this many unsent bytes is writable again."""
        return self.segment_bytes + 1

    @property
    def high_water_bytes(self) -> int:
        """A connection above this many unsent bytes takes no more frames."""
        return 2 * self.segment_bytes


def describe_settings() -> list[tuple[str, str, str]]:
    """Key, default and meaning of every setting, for the documentation."""
    rows = []
    for f in (*fields(JobSettings), *fields(ExchangeSettings)):
        default = f.default.value if isinstance(f.default, Enum) else f.default
        rows.append((str(f.metadata["key"]), str(default), str(f.metadata["meaning"])))
    return rows


_Settings = TypeVar("_Settings", JobSettings, ExchangeSettings)


def _parse(kind: type[_Settings], texts: Mapping[str, str]) -> _Settings:
    known = {f.metadata["key"]: f for f in fields(kind)}
    values: dict[str, Any] = {
        known[key].name: _parse_value(key, known[key], text.strip())
        for key, text in texts.items()
        if key in known
    }
    return kind(**values)


def _check_bounds(settings: JobSettings | ExchangeSettings) -> None:
    for f in fields(settings):
        low, value = f.metadata["low"], getattr(settings, f.name)
        if low is not None and not value >= low:
            raise SettingsInvalid(f.metadata["key"], f"{value} is below {low}")


_UNITS: Final[dict[str, dict[str, int]]] = {
    "bytes": {"kb": KIB, "k": KIB, "mb": MIB, "m": MIB, "gb": GIB, "g": GIB, "b": 1},
    "ms": {"ms": 1, "s": 1000, "min": 60_000},
}
"""What may follow a number, by the unit that ends the field's name."""


def _parse_value(key: str, setting: Field[Any], text: str) -> object:
    default = setting.default
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise SettingsInvalid(key, f"{text!r} is neither true nor false")
    if isinstance(default, Enum):
        choices = [str(choice.value) for choice in type(default)]
        if text.lower() in choices:
            return type(default)(text.lower())
        raise SettingsInvalid(key, f"{text!r} is none of {', '.join(choices)}")
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise SettingsInvalid(key, f"{text!r} is not a number") from None
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
    raise SettingsInvalid(key, f"{text!r} is not a whole number{behind}")
