"""What an environment can be told beside its streams: state, checkpoints, restarts, code to ship.

Law: everything is kept in the environment's configuration, under Flink's keys, or travels with the
program.
"""

from typing import TypeVar

from headgate.api.checks import check_text
from headgate.api.draft import Draft
from headgate.api.program import Cargo
from headgate.api.runtime import default_parallelism, outside, set_default_parallelism
from headgate.api.settings.checkpointing import CheckpointConfig, CheckpointingMode
from headgate.api.settings.configuration import Configuration, check_parallelism
from headgate.api.settings.restarts import RestartStrategyConfiguration, strategy_of
from headgate.api.settings.state_backend import StateBackend, backend_of
from headgate.base.errors import PlanInvalid
from headgate.base.recovery_settings import SAVEPOINT_FOLDER, CheckpointSettings

_Self = TypeVar("_Self", bound="EnvironmentSettings")

CHANGELOG = "state.changelog.enabled"
EXECUTABLE = "python.executable"


class EnvironmentSettings:
    """Base of the environment; every setter returns the environment itself, as PyFlink's do."""

    _configuration: Configuration
    _draft: Draft

    # Checkpoints and restarts

    def enable_checkpointing(
        self: _Self, interval: int, mode: CheckpointingMode | None = None
    ) -> _Self:
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

    def set_default_savepoint_directory(self: _Self, directory: str) -> _Self:
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
        """What shall happen after a failure; it replaces what was set before."""
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise PlanInvalid(
                f"set_restart_strategy() was given {restart_strategy_configuration!r}; "
                f"give one such as RestartStrategies.no_restart()"
            )
        restart_strategy_configuration.put_into(self._configuration, outside().settings())

    def get_restart_strategy(self) -> RestartStrategyConfiguration | None:
        """None: nothing was said, so that a job with checkpoints begins anew, others do not."""
        return strategy_of(self._configuration)

    # State

    def set_state_backend(self: _Self, state_backend: StateBackend) -> _Self:
        """Where keyed state lives; the same as setting ``state.backend.type``."""
        if not isinstance(state_backend, StateBackend):
            raise PlanInvalid(
                f"set_state_backend() was given {state_backend!r}; "
                f"give HashMapStateBackend() or EmbeddedRocksDBStateBackend()"
            )
        self._configuration.add_all(state_backend.configuration)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """None: nothing was said, so that state lives in memory."""
        return backend_of(self._configuration)

    def enable_changelog_state_backend(self: _Self, enabled: bool) -> _Self:
        """Kept and told again, but there is no such log here; a job that asks for it is warned."""
        self._configuration.set_boolean(CHANGELOG, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """None: nothing was said."""
        if not self._configuration.contains_key(CHANGELOG):
            return None
        return self._configuration.get_boolean(CHANGELOG, False)

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
        self._draft.cargo.append(Cargo.archive(path, target_dir))

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """A file or folder that the functions find in their working directory by this name."""
        path = check_text(file_path, "register_cached_file")
        check_text(name, "register_cached_file")
        self._draft.cargo.append(Cargo(path, name, executable=executable))

    def set_python_executable(self, python_exec: str) -> None:
        """Which Python runs the functions; it must have Headgate and fit the driver's version."""
        self._configuration.set_string(EXECUTABLE, check_text(python_exec, "set_python_executable"))
