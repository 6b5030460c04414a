"""The environment: where a program begins, and what runs it.

Each call of ``get_execution_environment`` gives a new one with default settings. Nothing is started
and no Spark is needed before ``execute``. Parallelism: an operator has what it was given, else what
the environment had when the operator was written, else what Spark has to offer, 4 at most.
``transform`` makes an environment of its own, for a step in a chain of DataFrames.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from headgate.api.checks import check_names, check_object, check_text, check_type
from headgate.api.collection import collection_source
from headgate.api.datastream import DataStream
from headgate.api.draft import Draft, Factory, JobFile, Origin, TranslationContext, unexecuted
from headgate.api.frame_stream import FrameStream
from headgate.api.job import JobClient, JobExecutionResult, RunningJob
from headgate.api.operator_settings import SlotSharingGroup, check_timeout
from headgate.api.program import build_graph, build_program, plan_picture
from headgate.api.row import Row
from headgate.api.runtime import default_parallelism, runtime, set_default_parallelism
from headgate.api.settings.checkpointing import CheckpointConfig, CheckpointingMode
from headgate.api.settings.configuration import (
    Configuration,
    ExecutionConfig,
    RuntimeExecutionMode,
    check_parallelism,
)
from headgate.api.settings.restarts import RestartStrategyConfiguration, strategy_of
from headgate.api.settings.state_backend import StateBackend, backend_of
from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.base.recovery_settings import SAVEPOINT_FOLDER, CheckpointSettings
from headgate.base.setting_fields import under_current_keys
from headgate.base.settings import ExchangeSettings, JobSettings
from headgate.core.chain.watermarks import source_time_plan
from headgate.core.operators.source import SourceOperator
from headgate.functions.function import SourceFunction
from headgate.functions.source import Source
from headgate.functions.type_variables import V
from headgate.functions.watermarks import WatermarkStrategy, check_strategy
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamGraph, execution_plan_json

if TYPE_CHECKING:
    from headgate.api.columns import ColumnStream

CHANGELOG = "state.changelog.enabled"
EXECUTABLE = "python.executable"
BUFFER_TIMEOUT = "execution.buffer-timeout.interval"


class StreamExecutionEnvironment:
    """Makes streams and executes what was made of them.

    ::

        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1, 2, 3]).map(lambda x: x * 2).print()
        env.execute("doubles")
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration()
        for key, text in runtime().settings().items():
            self._configuration.set_string(key, text)
        JobSettings.parse(self._configuration.to_dict())
        self._config = ExecutionConfig(self._configuration)
        self._draft = Draft(self, self._configuration, self._config)
        self._groups: dict[str, SlotSharingGroup] = {}
        if configuration is not None:
            self.configure(configuration)

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> "StreamExecutionEnvironment":
        """A new environment, with these settings on top of those of the user and the defaults."""
        return StreamExecutionEnvironment(configuration)

    # Settings

    def configure(self, configuration: Configuration) -> "StreamExecutionEnvironment":
        """Take over all settings, unknown ones too; a known one that is wrong is refused."""
        if not isinstance(configuration, Configuration):
            raise PlanInvalid(f"configure() was given {configuration!r}; give a Configuration")
        JobSettings.parse(configuration.to_dict())
        self._configuration.add_all(configuration)
        return self

    def get_configuration(self) -> Configuration:
        """The environment's own; changes to it count."""
        return self._configuration

    def get_config(self) -> ExecutionConfig:
        """Object reuse, job parameters and so on."""
        return self._config

    def set_parallelism(self, parallelism: int) -> "StreamExecutionEnvironment":
        """How many tasks each operator gets that is written from now on and sets none."""
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """What was set, else what Spark has to offer."""
        parallelism = self._config.get_parallelism()
        if parallelism > 0:
            return parallelism
        return default_parallelism(self._configuration.to_dict())

    def set_max_parallelism(self, max_parallelism: int) -> "StreamExecutionEnvironment":
        """The number of key groups of operators that set none."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1: not set."""
        return self._config.get_max_parallelism()

    def set_runtime_mode(
        self, execution_mode: RuntimeExecutionMode
    ) -> "StreamExecutionEnvironment":
        """STREAMING (the default), BATCH, or AUTOMATIC: BATCH if all sources end."""
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise PlanInvalid(
                f"set_runtime_mode() was given {execution_mode!r}; "
                f"give RuntimeExecutionMode.STREAMING, BATCH or AUTOMATIC"
            )
        self._configuration.set_string("execution.runtime-mode", execution_mode.name)
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> "StreamExecutionEnvironment":
        """How long records may wait for others on their way to the next task; -1: until full."""
        check_timeout(timeout_millis, "the environment")
        self._configuration.set_integer(BUFFER_TIMEOUT, timeout_millis)
        return self

    def get_buffer_timeout(self) -> int:
        return ExchangeSettings.parse(self._configuration.to_dict()).buffer_timeout_ms

    def disable_operator_chaining(self) -> "StreamExecutionEnvironment":
        """Give every operator tasks of its own."""
        self._configuration.set_boolean("pipeline.operator-chaining.enabled", False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._draft.settings.chaining

    def register_slot_sharing_group(
        self, slot_sharing_group: SlotSharingGroup
    ) -> "StreamExecutionEnvironment":
        """Declare the resources of a group, to which operators then refer by its name."""
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            raise PlanInvalid(
                f"register_slot_sharing_group() was given {slot_sharing_group!r}; "
                f"give a SlotSharingGroup"
            )
        self._groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    # Checkpoints and restarts

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> "StreamExecutionEnvironment":
        """Take a checkpoint every ``interval`` milliseconds; a job that fails goes on from it."""
        config = self.get_checkpoint_config()
        config.set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Everything about checkpoints; changes to it count."""
        return CheckpointConfig(self._configuration)

    def get_checkpoint_interval(self) -> int:
        """Milliseconds; -1: there are no checkpoints."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        return self.get_checkpoint_config().get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> "StreamExecutionEnvironment":
        """Where savepoints go, each into a folder of its own."""
        folder = check_text(directory, "set_default_savepoint_directory")
        self._configuration.set_string(SAVEPOINT_FOLDER, folder)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        texts = self._configuration.to_dict()
        return CheckpointSettings.parse(texts).savepoint_folder or None

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> None:
        """Set what happens after a failure; replaces the strategy that was set before."""
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise PlanInvalid(
                f"set_restart_strategy() was given {restart_strategy_configuration!r}; "
                f"give one such as RestartStrategies.no_restart()"
            )
        restart_strategy_configuration.put_into(self._configuration, runtime().settings())

    def get_restart_strategy(self) -> RestartStrategyConfiguration | None:
        """None: nothing was set; then jobs with checkpoints are restarted, others are not."""
        return strategy_of(self._configuration)

    # State

    def set_state_backend(self, state_backend: StateBackend) -> "StreamExecutionEnvironment":
        """Where keyed state lives; the same as setting ``state.backend.type``."""
        if not isinstance(state_backend, StateBackend):
            raise PlanInvalid(
                f"set_state_backend() was given {state_backend!r}; "
                f"give HashMapStateBackend() or EmbeddedRocksDBStateBackend()"
            )
        self._configuration.add_all(state_backend.configuration)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """None: nothing was set; then state lives in memory."""
        return backend_of(self._configuration)

    def enable_changelog_state_backend(self, enabled: bool) -> "StreamExecutionEnvironment":
        """Stored without effect: there is no changelog, and a job that enables it warns."""
        self._configuration.set_boolean(CHANGELOG, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """None: nothing was said."""
        texts = under_current_keys(self._configuration.to_dict())
        return CheckpointSettings.parse(texts).changelog if CHANGELOG in texts else None

    # Chains and parallelism

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Never: what shares a task has the same key groups."""
        return False

    @staticmethod
    def set_default_local_parallelism(parallelism: int) -> None:
        """The parallelism of operators that set none, in all environments that set none."""
        check_parallelism(parallelism, "parallelism", "the default of all environments")
        set_default_parallelism(parallelism)

    @staticmethod
    def get_default_local_parallelism() -> int:
        """What was set, else what Spark has to offer."""
        return default_parallelism({})

    # What travels with a program

    def add_python_file(self, file_path: str) -> None:
        """A module, package folder or zip that the functions import; it is sent to all workers."""
        self._draft.python_files.append(check_text(file_path, "add_python_file"))

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Packages that the functions import, as pip reads them from a file.

        They are installed once, in the driver, and sent to all workers; from ``cache_dir`` alone
        if there is one, which needs no network. What workers have already comes first.
        """
        path = check_text(requirements_file_path, "set_python_requirements")
        if requirements_cache_dir is not None:
            check_text(requirements_cache_dir, "set_python_requirements")
        self._draft.requirements = (path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """A zip or tar that is unpacked for the functions, into a folder of the working directory.

        The folder is called ``target_dir``, else as the archive: ``open("data.zip/words.txt")``.
        """
        path = check_text(archive_path, "add_python_archive")
        if target_dir is not None:
            check_text(target_dir, "add_python_archive")
        self._draft.job_files.append(JobFile.archive(path, target_dir))

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """A file or folder that the functions find in their working directory by this name."""
        path = check_text(file_path, "register_cached_file")
        check_text(name, "register_cached_file")
        self._draft.job_files.append(JobFile(path, name, executable=executable))

    def set_python_executable(self, python_exec: str) -> None:
        """Which Python runs the functions; it must have Headgate and fit the driver's version."""
        self._configuration.set_string(EXECUTABLE, check_text(python_exec, "set_python_executable"))

    def set_resource_profile(self, profile: object) -> "StreamExecutionEnvironment":
        """Resources that Spark gives each slot of the job: a ``pyspark.resource.ResourceProfile``.

        ::

            requests = TaskResourceRequests().cpus(2).resource("gpu", 1)
            env.set_resource_profile(ResourceProfileBuilder().require(requests).build)

        It may ask for resources of tasks only; executors have what the session gives them. All
        operators of a slot share them, and find them by ``TaskContext.get().resources()``. A local
        master has no resources, and ignores the profile.
        """
        kind = type(profile)
        if not (hasattr(kind, "id") and hasattr(kind, "taskResources")):
            raise PlanInvalid(
                f"set_resource_profile() was given a {kind.__name__}; give a ResourceProfile of "
                f"pyspark.resource, as ResourceProfileBuilder().require(…).build makes it"
            )
        self._draft.resource_profile = profile
        return self

    # Sources

    @overload
    def from_collection(self, collection: Iterable[V], type_info: None = None) -> DataStream[V]: ...

    @overload
    def from_collection(
        self, collection: Iterable[object], type_info: TypeInformation[V]
    ) -> DataStream[V]: ...

    def from_collection(
        self, collection: Iterable[Any], type_info: TypeInformation | None = None
    ) -> DataStream:
        """The elements of a collection, in order, from a single task.

        ``Types.ROW`` makes rows of tuples and lists, ``Types.TUPLE`` tuples.
        """
        source = collection_source(collection, type_info)
        stream = self._from(source, "Collection Source", type_info, source, single=True)
        stream._origins[0].transformation.passes_on = True  # coerced already
        return stream

    def from_source(
        self,
        source: Source[V],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: TypeInformation | None = None,
    ) -> DataStream[V]:
        """The records of a source: ``env.from_source(FileSource(...), None, "logs")``.

        With a strategy each split has event time of its own, and the slowest of those that are not
        idle counts; one that has not begun holds event time back. Without a strategy, what the
        source itself says about event time is passed on. Without a name it is called by what it
        reads. Without a type its records have the type that the source's ``get_produced_type``
        returns, if it has that method.
        """
        check_object(source, "from_source", ("splits", "open"), Source)
        if not isinstance(source, Source):
            raise PlanInvalid(
                f"from_source() was given a {type(source).__name__}, which is no Source; derive "
                f"its class from Source, and that of its readers from SplitReader"
            )
        if watermark_strategy is not None:
            check_strategy(watermark_strategy, "from_source")
        if source_name is None:
            source_name = str(getattr(source, "default_name", type(source).__name__))
        name = check_text(source_name, "from_source")
        if type_info is None and hasattr(source, "get_produced_type"):
            type_info = source.get_produced_type()
        type_info = check_type(type_info, "from_source")
        return self._from(source, name, type_info, source, strategy=watermark_strategy)

    def add_source(
        self,
        source_func: SourceFunction[V],
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> DataStream[V]:
        """The records that ``run(ctx)`` collects, from a single task."""
        check_object(source_func, "add_source", ("run", "cancel"), SourceFunction)
        source = runtime().function_source(source_func)
        name = check_text(source_name, "add_source")
        type_info = check_type(type_info, "add_source")
        return self._from(source, name, type_info, source_func, single=True)

    def from_dataframe(
        self,
        df: object,
        name: str = "DataFrame",
        *,
        order_by: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
    ) -> FrameStream:
        """The rows of a Spark DataFrame, as ``Row`` with its names, in any order.

        With ``order_by`` (names of columns) they come in ascending order, the same each time: to
        one of the tasks of the source, or, with ``partition_by``, those that are equal in these
        columns to the same task. The order holds up to the first exchange between tasks, and from
        there within each key, if ``key_by`` takes the columns of ``partition_by``.

        ::

            env.from_dataframe(trips, order_by="start", partition_by="car").key_by(lambda r: r.car)

        It stays columnar, batches of Arrow, if only columns are asked for: ``key_by("car")``.
        """
        order, parts = check_names(order_by, "order_by"), check_names(partition_by, "partition_by")
        source = runtime().dataframe_source(df, order, parts)
        stream = self._from(source, check_text(name, "from_dataframe"), None, source)
        return FrameStream(stream, source)

    def from_arrow(self, table: object, name: str = "Arrow") -> "ColumnStream":
        """The batches of a Table or RecordBatch of pyarrow, or of a list of batches.

        ::

            env.from_arrow(table).key_by("user").sum("amount").print()
        """
        source: Any = runtime().arrow_source(table)
        stream = self._from(source, check_text(name, "from_arrow"), None, source)
        return stream.columns(source.table.schema)

    def from_streaming_dataframe(
        self,
        df: object,
        name: str = "DataFrame",
        watermark_strategy: WatermarkStrategy | None = None,
    ) -> DataStream[Row]:
        """The rows of a streaming DataFrame of Spark, as ``Row`` with its names, exactly once.

        A streaming query, which starts and stops with the job, brings them, a micro-batch at a
        time; if it fails, so does the job. Where it is stands below the checkpoint folder, so that
        it goes on with the job from a checkpoint or savepoint.

        ::

            clicks = spark.readStream.format("delta").load("clicks")
            env.from_streaming_dataframe(clicks).key_by(lambda row: row.user)
        """
        source = runtime().streaming_source(df, check_text(name, "from_streaming_dataframe"))
        return self.from_source(source, watermark_strategy, name)

    # Execution

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run what was written and wait for its end.

        It is forgotten, also if it is refused or fails: the next execution runs what is written
        from now on. Streams that were made before can be used again.
        """
        return self._launch(job_name).wait()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Like ``execute``, without waiting for the end."""
        return JobClient(self._launch(job_name))

    def get_execution_plan(self) -> str:
        """The program as JSON: nodes with their inputs, parallelism and ways of shipping."""
        graph = build_graph(self._draft, None, self._draft.pending, splits=False)
        return execution_plan_json(graph)

    def get_stream_graph(self) -> StreamGraph:
        """One node for each operator; forgets nothing."""
        return build_graph(self._draft, None, self._draft.pending)

    def get_job_graph(self) -> JobGraph:
        """One vertex for each chain of operators; forgets nothing."""
        return build_job_graph(self.get_stream_graph())

    def _repr_svg_(self) -> str | None:
        """The plan so far as a picture, for notebooks; None: there is none."""
        return plan_picture(self._draft, self._draft.pending)

    def close(self) -> None:
        """Forget what was written."""
        self._draft.forget()

    def _launch(self, job_name: str | None) -> RunningJob:
        try:
            program = build_program(self._draft, job_name, self._draft.pending)
            job = runtime().launch(program)
        finally:
            self._draft.forget()
        unexecuted.has_executed = True
        return job

    def _from(
        self,
        source: Source,
        name: str,
        type_info: TypeInformation | None,
        function: object,
        single: bool = False,
        strategy: WatermarkStrategy | None = None,
    ) -> DataStream:
        def translate(context: TranslationContext) -> Factory:
            interval_ms = self._draft.settings.watermark_interval_ms
            plan = source_time_plan(strategy or context.strategy, interval_ms, context.batch)
            return partial(
                SourceOperator, source, context.splits, plan, context.assigned, context.listed
            )

        functions: tuple[tuple[str, object], ...] = (("source", function),)
        if strategy is not None:
            functions += (("watermark strategy", strategy),)
        transformation = self._draft.add(name, NodeKind.SOURCE, translate, (), functions)
        transformation.source = source
        transformation.output_type = type_info
        transformation.assigns_times = strategy is not None and strategy.assigns_times
        transformation.takes_strategy = strategy is None
        if single:
            transformation.parallelism = 1
            transformation.is_non_parallel = True
        return DataStream(self._draft, [Origin(transformation)], type_info)


def transform(
    df: object,
    function: Callable[[DataStream[Row]], DataStream],
    schema: object,
    *,
    order_by: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    parallelism: int | None = None,
    configuration: Configuration | None = None,
    job_name: str | None = None,
) -> Any:
    """The rows of a Spark DataFrame, sent through a pipeline, as a lazy Spark DataFrame.

    ``function`` gets a DataStream of the rows and returns one whose records fit the ``schema``. It
    is called once, now. ``order_by`` and ``partition_by`` are those of ``from_dataframe``; the
    environment of the pipeline has this ``parallelism`` and ``configuration``, and further
    DataFrames can join through ``stream.get_execution_environment()``.

    ::

        def totals(rides):
            fares = rides.map(lambda row: (row.car, row.fare)).key_by(lambda fare: fare[0])
            return fares.sum(1)

        rides.where("fare > 0").transform(
            headgate.transform, totals, "car string, total double", order_by="start", parallelism=2
        ).write.saveAsTable("totals")
    """
    if not callable(function):
        raise PlanInvalid(
            f"transform() needs a function from a DataStream to a DataStream, not {function!r}"
        )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    if parallelism is not None:
        env.set_parallelism(parallelism)
    stream = function(env.from_dataframe(df, order_by=order_by, partition_by=partition_by))
    if not isinstance(stream, DataStream):
        name = getattr(function, "__qualname__", repr(function))
        raise PlanInvalid(
            f"transform() needs a function that returns a DataStream, but {name} returned "
            f"{stream!r}; end it with the stream, without a sink and without execute()"
        )
    return stream.to_dataframe(schema, job_name)
