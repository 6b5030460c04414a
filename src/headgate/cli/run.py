"""``headgate run job.py``: a user's program on Spark, with its progress in sight.

It behaves as ``python job.py`` does, and adds: flags instead of a file of settings, progress on
standard error, jobs that end in order when the user or the system interrupts, and exit codes.
"""

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from os import environ
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from headgate.api.draft import unexecuted
from headgate.base.recovery_settings import (
    IGNORE_DAMAGED,
    IGNORE_UNCLAIMED,
    JOB_ID,
    RESTORE_PATH,
    CheckpointSettings,
    RecoverySettings,
    RestartSettings,
)
from headgate.base.settings import GIB, MIB, JobSettings, LogSettings, ProgressShown, RestSettings
from headgate.cli.entry import (
    CONFIGURATION,
    INTERRUPTED,
    TERMINATED,
    Terminated,
    show_signal,
    signals_raise,
)
from headgate.cli.user_program import (
    StartedJobs,
    exit_code_of,
    run_script,
    show_error,
)
from headgate.host.files.owned_folder import process_folder
from headgate.observe.logs import log_settings, set_up_logs
from headgate.spark.cluster import signal_of
from headgate.spark.configuration import check_known, given_settings, set_flags
from headgate.spark.connect import REMOTE, REMOTE_VARIABLE, TOKEN_VARIABLE, remote_of
from headgate.spark.job_files import import_root
from headgate.spark.session import chosen_master, spark_defaults

PROGRESS: Final = "headgate.progress"
STRICT: Final = "headgate.strict"
SHIP_SIZE: Final = "headgate.ship.max-size"
LARGEST: Final = 5
"""How many of the shipped packages are named, the largest."""

_Command = TypeVar("_Command", bound=Callable[..., object])


def setting(
    *names: str, key: str, value: str = "", empty: str = "", **more: Any
) -> Callable[[_Command], _Command]:
    """An option that gives this setting.

    ``value``: what a flag sets; ``empty``: what to give instead of an empty text.
    """

    def note(context: click.Context, option: click.Parameter, given: object) -> None:
        if given == "" and empty:
            hint = next(name for name in option.opts if name.startswith("--"))
            raise click.BadParameter(f"it is empty; {empty}", param_hint=hint)
        if given:
            context.ensure_object(dict)[key] = value or str(given)

    return click.option(*names, is_flag=bool(value), expose_value=False, callback=note, **more)


SCRIPT = click.argument("script", type=click.Path(exists=True, dir_okay=False))
ARGUMENTS = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
PARALLELISM = setting(
    "-p",
    "--parallelism",
    key="parallelism.default",
    type=click.IntRange(1),
    help="Of operators that set none.",
)
DEFINE = click.option(
    "-D",
    "defines",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, as in headgate.yaml; keys that begin with spark. are for Spark.",
)


@click.command()
@SCRIPT
@ARGUMENTS
@click.option("--master", help="Where Spark runs: spark://host:7077, yarn, local[4] …")
@click.option("--remote", help="A Spark Connect server: sc://host:15002; local[4] starts one.")
@PARALLELISM
@DEFINE
@click.option(
    "--py-files",
    metavar="FILES",
    help="Modules and zips that the workers need, with commas between them.",
)
@click.option(
    "--ship",
    is_flag=True,
    help="Send the workers of a cluster all that this Python can import: Headgate, installed "
    "packages, modules beside the script. They need Spark, and a Python of the same version.",
)
@click.option(
    "--ship-without",
    metavar="NAMES",
    help="Packages that --ship leaves out because workers have them, with commas between them.",
)
@setting(
    "-s",
    "--from",
    "--from-savepoint",
    key=RESTORE_PATH,
    empty="give a checkpoint's folder",
    metavar="PATH",
    help="Go on from this checkpoint or savepoint.",
)
@setting(
    "-n",
    "--allow-non-restored-state",
    key=IGNORE_UNCLAIMED,
    value="true",
    help="Leave behind the state of operators that the program does not have any more.",
)
@setting(
    "--ignore-damaged-checkpoints",
    key=IGNORE_DAMAGED,
    value="true",
    help="If every checkpoint of the job is damaged, begin without them, and write again what "
    "its sinks have committed.",
)
@setting(
    "--job-id",
    key=JOB_ID,
    empty="give letters or digits",
    metavar="ID",
    help="With the same id and folder of checkpoints a job goes on after the loss of its driver.",
)
@setting("--strict", key=STRICT, value="true", help="Refuse settings that nobody knows.")
@setting(
    "--no-progress",
    key=PROGRESS,
    value=ProgressShown.OFF.value,
    help="Do not show how the jobs get on.",
)
@setting(
    "--log-level",
    key="headgate.log.level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Of driver and workers; warning, unless the settings say otherwise.",
)
@setting(
    "--log-format",
    key="headgate.log.format",
    type=click.Choice(["text", "json"]),
    help="json: one object a line, with job, task, subtask and attempt.",
)
def run(
    script: str,
    arguments: tuple[str, ...],
    master: str | None,
    remote: str | None,
    defines: tuple[str, ...],
    py_files: str | None,
    ship: bool,
    ship_without: str | None,
) -> int:
    """Run a program: headgate run job.py -- arguments of its own.

    Its environments begin with the settings of the flags; what it sets itself comes first. The
    command ends when the program and all jobs that it has started have ended.
    """
    flags = flags_of(defines)
    log_as_asked(flags)
    flags.update(session_flags(master, remote))
    if ship or ship_without is not None:
        flags.update(ship_flags(script, flags, ship_without or ""))
    if py_files:
        flags.update(python_files(py_files))
    pass_to_spark(flags)
    pass_to_headgate(flags)
    return run_program(script, arguments)


def flags_of(defines: Sequence[str]) -> dict[str, str]:
    """Settings out of ``-D``, and out of the options of this command that are settings."""
    flags = {}
    for define in defines:
        key, sign, value = define.partition("=")
        if not sign or not key.strip():
            raise click.BadParameter(f"{define!r} is not KEY=VALUE", param_hint="-D")
        flags[key.strip()] = value.strip()
    flags.update(click.get_current_context().find_object(dict) or {})
    for group in (
        JobSettings,
        LogSettings,
        CheckpointSettings,
        RecoverySettings,
        RestartSettings,
        RestSettings,
    ):
        group.parse(flags)  # refused before anything is started
    return flags


def python_files(paths: str) -> dict[str, str]:
    """Settings out of ``--py-files``; the program can import them, too."""
    missing = [path for path in paths.split(",") if not Path(path.strip()).exists()]
    if missing:
        raise click.BadParameter(f"{missing[0]!r} is not there", param_hint="--py-files")
    sys.path[1:1] = map(import_root, paths.split(","))
    return {"python.files": paths}


def ship_flags(script: str, flags: Mapping[str, str], without: str) -> dict[str, str]:
    """Settings out of ``--ship``: of a session whose workers get what this process can import."""
    from headgate.spark.configuration import given_settings
    from headgate.spark.shipped_environment import find_environment, ship_options, unknown_names

    if remote_of(flags):
        problem = "the workers of a Spark Connect server have its Python; install packages there"
        raise click.BadParameter(problem, param_hint="--ship")
    path = [str(Path(script).resolve().parent), *sys.path[1:]]
    names = [name.strip() for name in without.split(",") if name.strip()]
    if unknown := unknown_names(names, path):
        raise click.BadParameter(f"{unknown[0]!r} is not there", param_hint="--ship-without")
    files, given = spark_defaults(), {**given_settings(), **flags}
    if (chosen_master(given, files) or "local").startswith("local"):
        click.echo("headgate: --ship has no effect: all workers run on this machine", err=True)
        return {}
    began = time.monotonic()
    shipped = find_environment(path, names)
    largest = [f"{name} {size_text(size)}" for name, size in shipped.packages[:LARGEST]]
    most = JobSettings.parse(given).ship_bytes
    if shipped.size > most:
        raise click.BadParameter(
            f"it would send {size_text(shipped.size)} to each executor, more than "
            f"{SHIP_SIZE} allows ({size_text(most)}); the largest are {', '.join(largest)}: name "
            f"those that workers have in --ship-without, or allow more with -D {SHIP_SIZE}=…",
            param_hint="--ship",
        )
    archive = shipped.pack(Path(process_folder("scratch")))
    packed, seconds = Path(archive).stat().st_size, time.monotonic() - began
    click.echo(
        f"headgate: ships {len(shipped.packages)} packages of {size_text(shipped.size)} to the "
        f"workers ({size_text(packed)} packed, after {seconds:.0f} s), the largest: "
        f"{', '.join(largest)}; --ship-without leaves out what workers have",
        err=True,
    )
    return ship_options(archive, {**files, **given})


def size_text(size: int) -> str:
    """Bytes as a person reads them."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{-(-size // MIB)} MiB"


def session_flags(master: str | None, remote: str | None) -> dict[str, str]:
    """Settings out of the flags that say where Spark is; flags go over ``SPARK_REMOTE``."""
    if master and remote:
        raise click.BadParameter("give either --remote or --master", param_hint="--remote")
    if master:
        environ.pop(REMOTE_VARIABLE, None)
        return {"spark.master": master}
    if remote and ";token=" in remote:
        click.echo(
            f"headgate: the token in --remote stands in the list of processes; give the address in "
            f"{REMOTE_VARIABLE} instead, or the token in {TOKEN_VARIABLE}",
            err=True,
        )
    return {REMOTE: remote} if remote else {}


def log_as_asked(flags: dict[str, str]) -> None:
    """Set up logs before anything is logged, also about what is wrong with the settings."""

    set_flags(flags)
    settings = log_settings(given_settings())
    set_up_logs(settings.level.value, settings.format.value)


def pass_to_headgate(flags: dict[str, str]) -> None:
    """Give the settings to every environment of this process; progress is shown by default."""

    set_flags(flags)
    given = given_settings()
    check_known(given)
    if JobSettings.parse(given).progress is ProgressShown.AUTO:
        set_flags({**flags, PROGRESS: ProgressShown.ON.value})


def pass_to_spark(flags: dict[str, str]) -> None:
    """Give the settings to a session that the program makes by itself."""
    if remote := flags.get(REMOTE):
        environ[REMOTE_VARIABLE] = remote
    pairs = [
        (key, value) for key, value in flags.items() if key.startswith("spark.") and key != REMOTE
    ]
    if pairs:
        words = [word for pair in pairs for word in ("--conf", "=".join(pair))]
        given = environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(words)} {given}"


def run_program(script: str, arguments: Sequence[str]) -> int:
    """The script, then the jobs that it has left running; returns the exit code."""
    try:
        with StartedJobs() as jobs, signals_raise():
            return _run(script, arguments, jobs)
    finally:
        unexecuted.clear()  # what was to be said about it was said: nothing after a failure
        sys.stdout.flush()


def _run(script: str, arguments: Sequence[str], jobs: StartedJobs) -> int:
    try:
        run_script(script, arguments)
        jobs.wait()
        return check_executed(script)
    except click.ClickException:
        raise
    except (Terminated, KeyboardInterrupt) as raised:
        return end_by_signal(raised, jobs)
    except SystemExit as end:
        jobs.wait()
        return exit_code(end) or check_executed(script)
    except Exception as error:
        cause = signal_of(error)
        if isinstance(cause, Terminated | KeyboardInterrupt):
            return end_by_signal(cause, jobs)
        jobs.cancel("the program failed")
        jobs.close_display()  # its last lines come before the trouble
        show_error(error, script)
        return exit_code_of(error)


def check_executed(script: str) -> int:
    """The program has ended well: say so if it has forgotten to execute what it has written."""
    problem = unexecuted.problem()
    is_whole = problem and not unexecuted.has_executed
    unexecuted.clear()
    if problem:
        click.echo(f"headgate: {script}: {problem}", err=True)
    return CONFIGURATION if is_whole else 0


def end_by_signal(raised: Terminated | KeyboardInterrupt, jobs: StartedJobs) -> int:
    """A signal has come: end the jobs in order, then say so in one line."""
    if isinstance(raised, Terminated):
        jobs.cancel("the system terminated it", suspend=True)
    else:
        jobs.cancel("the user interrupted it")
    jobs.close_display()
    return show_signal(TERMINATED if isinstance(raised, Terminated) else INTERRUPTED)


def exit_code(end: SystemExit) -> int:
    """As Python does it: nothing is 0; a text is printed and is 1."""
    match end.code:
        case None:
            return 0
        case int(code):
            return code
        case text:
            click.echo(text, err=True)
            return 1
