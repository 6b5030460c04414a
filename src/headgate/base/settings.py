"""Settings of a job, of the data exchange, of state and of the page: names, defaults, bounds.

Keys are Flink's where the meaning is the same. ``parse`` of a group takes texts as they stand in a
file or on a command line; a wrong value is refused with its key and what would be right.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.recovery_settings import CheckpointSettings, RecoverySettings, RestartSettings
from headgate.base.setting_fields import SettingsGroup, setting


class LogFormat(str, Enum):
    """What a line looks like."""

    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """Lines of this level and above."""

    WARNING = "warning"
    DEBUG = "debug"
    INFO = "info"
    ERROR = "error"


class ShipLevel(str, Enum):
    """The lowest level of lines that are sent; debugging lines are too many for that."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class LogSettings(SettingsGroup):
    """How driver and workers of a job log, if nothing else was set up there."""

    format: LogFormat = setting(
        "headgate.log.format",
        LogFormat.TEXT,
        "`text`, or `json`: one object a line. Flag `--log-format` of `headgate run`.",
    )
    level: LogLevel = setting(
        "headgate.log.level",
        LogLevel.WARNING,
        "Lines that driver and workers write: `debug`, `info`, `warning` or `error` and above. "
        "Flag `--log-level` of `headgate run`.",
    )
    ship_level: ShipLevel = setting(
        "headgate.log.ship-level",
        ShipLevel.WARNING,
        "Of these, lines that workers send to the driver, for `headgate logs` and the page: "
        "`info`, `warning` or `error` and above, or `off`.",
    )


KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
MAX_PORT: Final = 65_535


class RuntimeMode(str, Enum):
    """Whether results are emitted while records arrive, or once at the end."""

    STREAMING = "streaming"
    BATCH = "batch"
    AUTOMATIC = "automatic"


class DefaultPolicy(str, Enum):
    """Policy for records that fail, in operators without a policy of their own."""

    FAIL = "fail"
    SKIP = "skip"


class ProgressShown(str, Enum):
    """Whether the terminal shows the progress of a running job."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class FlowControl(str, Enum):
    """How a sender is stopped: by the credit of each channel, or by the socket of a connection."""

    CREDIT = "credit"
    TCP = "tcp"


class Compression(str, Enum):
    """How buffers are compressed, if that makes them smaller."""

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


@dataclass(frozen=True, slots=True)
class JobSettings(SettingsGroup):
    """How a program becomes a job. Settings in the program override these."""

    parallelism: int = setting(
        "parallelism.default",
        -1,
        "Parallelism of operators that set none; -1: the cores that Spark has, 4 at most.",
        -1,
    )
    max_parallelism: int = setting(
        "pipeline.max-parallelism",
        -1,
        "Key groups, which bound the parallelism; -1: 128, or more for a large parallelism.",
        -1,
    )
    runtime_mode: RuntimeMode = setting(
        "execution.runtime-mode",
        RuntimeMode.STREAMING,
        "`streaming`, `batch`, or `automatic`: batch if all sources end. If it is not set, a job "
        "with keys or event time that ends in a DataFrame is a batch job.",
    )
    sort_bytes: int = setting(
        "execution.sorted-inputs.memory",
        64 * MIB,
        "Batch: bytes of memory in which an operator on a keyed stream sorts; the rest goes to "
        "disk.",
        1,
    )
    chaining: bool = setting(
        "pipeline.operator-chaining.enabled", True, "Operators may share a task."
    )
    object_reuse: bool = setting(
        "pipeline.object-reuse", False, "Operators of a task hand on records without copying them."
    )
    inline_functions: bool = setting(
        "pipeline.inline-functions",
        True,
        "Short functions are written into the loops that call them, where their source is known.",
    )
    auto_uids: bool = setting(
        "pipeline.auto-generate-uids",
        True,
        "Operators without a `uid` get one of their own; `false`: they are refused.",
    )
    on_error: DefaultPolicy = setting(
        "pipeline.on-error",
        DefaultPolicy.FAIL,
        "What becomes of a record that a function fails for, or that a source cannot read: `fail` "
        "the job, or `skip` and count it; `on_error()` of an operator comes before it.",
    )
    most_failures_in_a_row: int = setting(
        "pipeline.on-error.max-in-a-row",
        10_000,
        "A task fails after it has skipped this many records in a row; 0: no limit.",
        0,
    )
    watermark_interval_ms: int = setting(
        "pipeline.auto-watermark-interval", 200, "Milliseconds between watermarks; 0: never.", 0
    )
    name: str = setting("pipeline.name", "", "The job's name if `execute` is given none.")
    parameters: str = setting(
        "pipeline.global-job-parameters", "", "For `get_job_parameter`: `name:value,name:value`."
    )
    python_files: str = setting(
        "python.files",
        "",
        "Modules, package folders and zips that all workers get; commas between them.",
    )
    python_archives: str = setting(
        "python.archives",
        "",
        "Archives that are unpacked for the functions: `path#folder,path`; see "
        "`add_python_archive`.",
    )
    python_requirements: str = setting(
        "python.requirements",
        "",
        "A file with packages for the functions, `path` or `path#folder with all packages`.",
    )
    python_executable: str = setting(
        "python.executable", "", "The Python of the workers; none: that of the Spark session."
    )
    class_archive: bool = setting(
        "java.class-archive",
        True,
        "Start Spark's JVM from an archive of its classes, which is made once, after the first "
        "program has ended.",
    )
    worker_slots: int = setting(
        "worker.slots",
        0,
        "Slots of a Python worker, and so tasks of an operator that share its process; 0: one, or "
        "on a local master that has more than four for each core, so many that there are two "
        "workers for each. Jobs that read DataFrames have one.",
        0,
    )
    start_timeout_ms: int = setting(
        "task.start.timeout",
        3_600_000,
        "Milliseconds in which the workers of a job must register, and then its tasks restore "
        "their state and open. Otherwise the job fails, and names those that are missing.",
        1,
    )
    cancel_timeout_ms: int = setting(
        "task.cancellation.timeout",
        30_000,
        "Milliseconds in which a user's function must return after a cancellation or a failure "
        "elsewhere; otherwise its process is ended.",
        1,
    )
    metrics_interval_ms: int = setting(
        "metrics.interval", 1_000, "Milliseconds between two reports of figures to the driver.", 10
    )
    marker_interval_ms: int = setting(
        "metrics.latency.interval",
        1_000,
        "Milliseconds between two latency markers of a source, each of which goes one way through "
        "the job; 0 sends none.",
        0,
    )
    driver_address: str = setting(
        "jobmanager.rpc.address",
        "",
        "The address of the driver that workers connect to; none: the one of Spark's driver, or "
        "with Spark Connect the one from which the server is reached.",
    )
    driver_bind_host: str = setting(
        "jobmanager.bind-host",
        "",
        "The address of this machine on which the driver listens for workers; none: the one that "
        "they connect to.",
    )
    control_port: int = setting(
        "jobmanager.rpc.port",
        0,
        "The driver's port for task managers; 0 takes a free one. The first job opens it.",
        0,
    )
    results_port: int = setting(
        "jobmanager.results.port",
        0,
        "The driver's port for records that are printed or collected there; 0 takes a free one.",
        0,
    )
    spark_authentication: bool = setting(
        "security.require-spark-authentication",
        False,
        "Refuse a Spark session whose own connections are not authenticated and encrypted; "
        "`false` only warns.",
    )
    archive_folder: str = setting(
        "jobmanager.archive.fs.dir",
        "",
        "Folder, or URI of one, for archives of jobs that have ended, which `headgate history` "
        "shows; none: there are none.",
    )
    progress: ProgressShown = setting(
        "headgate.progress",
        ProgressShown.AUTO,
        "Progress of a job, on standard error or in the cell of a notebook: `on`, `off`, or "
        "`auto` (`headgate run` and notebooks show it).",
    )
    ship_bytes: int = setting(
        "headgate.ship.max-size",
        2 * GIB,
        "Bytes of files that `headgate run --ship` may send to each executor, unpacked. More is "
        "refused, and the error names the largest packages.",
        1,
    )
    strict: bool = setting(
        "headgate.strict",
        False,
        "Refuse unknown settings; `false`: a warning suggests what was probably meant. The flag "
        "`--strict` of `headgate run` sets it.",
    )

    def _check(self) -> None:
        for name in ("parallelism", "max_parallelism"):
            if getattr(self, name) == 0:
                raise self._refused(name, "0 is below 1; -1 leaves the choice to Headgate")


@dataclass(frozen=True, slots=True)
class RestSettings(SettingsGroup):
    """The driver's web page and REST API; the first job of a process opens it for all."""

    enabled: bool = setting(
        "rest.enabled",
        True,
        "The driver serves a web page and a REST API; it needs the extra `ui`.",
    )
    bind_address: str = setting(
        "rest.bind-address",
        "127.0.0.1",
        "Where the page is served; from another address than the loopback one it asks for a token.",
    )
    port: int = setting(
        "rest.port",
        0,
        "Its port; 0 takes 8081, or the next free one up to 8100. The first job opens it.",
        0,
        high=MAX_PORT,
    )
    token: str = setting(
        "rest.token",
        "",
        "Token that the page and the API ask for. Without one, the loopback address asks for "
        "nothing, and for another address the driver makes a token and prints it.",
    )
    subtask_metrics: bool = setting(
        "rest.subtask-metrics", False, "Metrics at `/metrics` have a label for each subtask."
    )

    def _check(self) -> None:
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise self._refused("token", "it has characters other than printable ASCII")
        if any(letter.isspace() for letter in self.token):
            raise self._refused("token", "it has a space in it")


@dataclass(frozen=True, slots=True)
class ExchangeSettings(SettingsGroup):
    """The data exchange of a task manager."""

    segment_bytes: int = setting(
        "taskmanager.memory.segment-size", 32 * KIB, "Bytes of one buffer.", 1
    )
    memory_fraction: float = setting(
        "taskmanager.memory.network.fraction",
        0.1,
        "Share of the worker's memory for buffers.",
        0,
        below=1,
    )
    memory_min_bytes: int = setting(
        "taskmanager.memory.network.min",
        64 * MIB,
        "Never fewer bytes of buffers than this; more if the job needs them.",
        1,
    )
    memory_max_bytes: int = setting(
        "taskmanager.memory.network.max",
        GIB,
        "Never more bytes of buffers than this; a job that needs more is refused before it starts.",
        1,
    )
    buffers_per_channel: int = setting(
        "taskmanager.network.memory.buffers-per-channel",
        2,
        "Exclusive buffers of an input channel; 0: it has only floating buffers.",
        0,
    )
    floating_per_gate: int = setting(
        "taskmanager.network.memory.floating-buffers-per-gate",
        8,
        "Buffers that the channels of a gate share, by backlog.",
        0,
    )
    overdraft_buffers: int = setting(
        "taskmanager.network.memory.max-overdraft-buffers-per-gate",
        5,
        "Buffers beyond its limit that a partition may take so that a begun step can end.",
        0,
    )
    min_buffer_bytes: int = setting(
        "taskmanager.memory.min-segment-size", 256, "No buffer is debloated below this.", 1
    )
    debloat: bool = setting(
        "taskmanager.network.memory.buffer-debloat.enabled",
        True,
        "Buffers become smaller in front of a slow consumer, so that little is in flight.",
    )
    debloat_target_ms: int = setting(
        "taskmanager.network.memory.buffer-debloat.target",
        1_000,
        "Target time, in milliseconds, in which a task consumes the buffers in flight to it.",
        1,
    )
    debloat_period_ms: int = setting(
        "taskmanager.network.memory.buffer-debloat.period",
        200,
        "Milliseconds between two measurements of how fast a task consumes.",
        1,
    )
    debloat_samples: int = setting(
        "taskmanager.network.memory.buffer-debloat.samples",
        20,
        "Number of measurements that count.",
        1,
    )
    debloat_threshold_percent: int = setting(
        "taskmanager.network.memory.buffer-debloat.threshold-percentages",
        25,
        "Per cent by which the size must change before it is sent to producers.",
        0,
    )
    landing_buffers: int = setting(
        "exchange.landing-buffers",
        24,
        "Buffers of a connection that incoming bytes are scattered into, one system call for all; "
        "fewer if those of all connections do not fit.",
        1,
    )
    burst_frames: int = setting(
        "exchange.burst-frames", 24, "Frames handed to the socket in one system call.", 1
    )
    flow_control: FlowControl = setting(
        "exchange.flow-control", FlowControl.CREDIT, "`credit`, or `tcp` to compare with."
    )
    compression: Compression = setting(
        "exchange.compression", Compression.NONE, "`none`, `lz4` or `zstd`, for data buffers."
    )
    buffer_timeout_ms: int = setting(
        "execution.buffer-timeout.interval",
        100,
        "Flush period; 0: after every record, -1 (or `execution.buffer-timeout.enabled: false`): "
        "only full buffers.",
        -1,
    )
    backoff_initial_ms: int = setting(
        "taskmanager.network.request-backoff.initial",
        100,
        "First pause before a partition that was not found is asked for again.",
        0,
    )
    backoff_max_ms: int = setting(
        "taskmanager.network.request-backoff.max",
        10_000,
        "Longest such pause; after it the error is raised.",
        0,
    )
    max_element_bytes: int = setting(
        "exchange.max-element-bytes", GIB + MIB, "Longest element a channel accepts.", 1
    )
    max_event_bytes: int = setting(
        "exchange.max-event-bytes",
        MIB,
        "Longest task event; events that travel with the data have 64 KiB at most in any case.",
        64,
    )
    spill_bytes: int = setting(
        "exchange.spill-bytes", 5 * MIB, "Longer spanning elements are gathered on disk.", 1
    )
    storage: Storage = setting(
        "taskmanager.network.blocking-shuffle.type",
        Storage.FILE_MMAP,
        "Where blocking partitions keep data: `file`, `mmap` or `file-mmap`.",
    )
    bind_host: str = setting("taskmanager.bind-host", "127.0.0.1", "Address the data port binds.")
    bind_port: int = setting(
        "taskmanager.data.port", 0, "The data port; 0 takes a free one.", 0, high=MAX_PORT
    )
    transport: TransportKind = setting(
        "exchange.transport", TransportKind.AUTO, "`epoll`, `poll` (any Unix), or `auto`."
    )
    connect_timeout_ms: int = setting(
        "exchange.connect-timeout", 10_000, "Longest wait for a connection and its handshake.", 1
    )
    connect_retry_ms: int = setting(
        "exchange.connect-retry-timeout",
        30_000,
        "Milliseconds for which a consumer tries again, with growing pauses, to connect to a task "
        "manager that does not answer or is busy with others; 0: it tries once.",
        0,
    )
    accept_backlog: int = setting(
        "exchange.accept-backlog",
        1024,
        "Connections that may wait to be proven; more, if the tasks of the worker have more "
        "readers, but at most a quarter of the files that its process may open.",
        1,
    )
    socket_buffer_bytes: int = setting(
        "exchange.socket-buffer-bytes", 0, "Kernel's send and receive buffers; 0: its default.", 0
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval", 5_000, "A connection that is quiet this long sends a sign of life.", 1
    )
    heartbeat_timeout_ms: int = setting(
        "heartbeat.timeout", 50_000, "A peer that is quiet this long is given up.", 1
    )
    tls_enabled: bool = setting(
        "security.ssl.internal.enabled",
        False,
        "Mutual TLS between task managers, and between them and the driver.",
    )
    tls_certificate: str = setting(
        "security.ssl.internal.certificate",
        "",
        "PEM file: the certificate of this worker or driver.",
    )
    tls_key: str = setting("security.ssl.internal.key", "", "PEM file: its private key.")
    tls_authority: str = setting(
        "security.ssl.internal.authority", "", "PEM file: who must have signed the peers'."
    )

    def _check(self) -> None:
        if self.segment_bytes > self.memory_max_bytes:
            raise self._refused(
                "segment_bytes",
                f"{self.segment_bytes} is above taskmanager.memory.network.max "
                f"({self.memory_max_bytes}), so that there would be no buffer",
            )
        if self.memory_min_bytes > self.memory_max_bytes:
            raise self._refused(
                "memory_min_bytes",
                f"{self.memory_min_bytes} is above taskmanager.memory.network.max "
                f"({self.memory_max_bytes})",
            )
        if self.backoff_initial_ms > self.backoff_max_ms:
            raise self._refused(
                "backoff_initial_ms",
                f"{self.backoff_initial_ms} is above the maximum {self.backoff_max_ms}",
            )
        if self.buffers_per_channel == 0 and self.floating_per_gate == 0:
            raise self._refused(
                "floating_per_gate",
                "must be at least 1 when channels have no exclusive buffers",
            )
        if self.heartbeat_timeout_ms < self.heartbeat_interval_ms:
            raise self._refused(
                "heartbeat_timeout_ms",
                f"{self.heartbeat_timeout_ms} is below heartbeat.interval "
                f"({self.heartbeat_interval_ms}), so that every quiet peer would be given up",
            )

    @classmethod
    def _spelled_out(cls, texts: dict[str, str]) -> None:
        if texts.get("execution.buffer-timeout.enabled", "").strip().lower() == "false":
            texts["execution.buffer-timeout.interval"] = "-1"

    @property
    def low_water_bytes(self) -> int:
        """A connection below this many unsent bytes is writable again."""
        return self.segment_bytes + 1

    @property
    def high_water_bytes(self) -> int:
        """A connection above this many unsent bytes takes no more frames."""
        return 2 * self.segment_bytes


class StateBackendKind(str, Enum):
    """Where keyed state lives: as objects in memory, or as bytes in files."""

    HASHMAP = "hashmap"
    ROCKSDB = "rocksdb"


class StateCompression(str, Enum):
    """How blocks of RocksDB's files are packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class StateSettings(SettingsGroup):
    """The state of one task manager."""

    backend: StateBackendKind = setting(
        "state.backend.type",
        StateBackendKind.HASHMAP,
        "Where keyed state lives: `hashmap`, in memory, or `rocksdb`, in files.",
    )
    rocksdb_memory_bytes: int = setting(
        "state.backend.rocksdb.memory",
        256 * MIB,
        "Bytes of memory that all RocksDB state of a task manager shares.",
        8 * MIB,
    )
    rocksdb_objects_fraction: float = setting(
        "state.backend.rocksdb.memory.objects-fraction",
        0.25,
        "Share of that memory for values that were used last, as objects; 0: none.",
        0,
        below=1,
    )
    rocksdb_writes_fraction: float = setting(
        "state.backend.rocksdb.memory.write-buffer-ratio",
        0.5,
        "Share of the rest for what is not in files yet; the remainder caches blocks of files.",
        0.01,
        below=1,
    )
    rocksdb_folder: str = setting(
        "state.backend.rocksdb.localdir",
        "",
        "Folder on every worker under which RocksDB keeps its files; none: the temporary folder.",
    )
    rocksdb_compression: StateCompression = setting(
        "state.backend.rocksdb.compression",
        StateCompression.LZ4,
        "How RocksDB packs its files: `none`, `lz4` or `zstd`.",
    )
    rocksdb_threads: int = setting(
        "state.backend.rocksdb.thread.num",
        2,
        "Threads of a task manager that write and merge RocksDB's files in the background.",
        1,
    )


def describe_settings() -> list[tuple[str, str, str]]:
    """Key, default and meaning of every setting, for the documentation."""
    recovery = (CheckpointSettings, RecoverySettings, RestartSettings)
    groups = (JobSettings, LogSettings, *recovery, StateSettings, ExchangeSettings, RestSettings)
    return [row for group in groups for row in group.describe()]
