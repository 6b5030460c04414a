"""Settings that come from outside of a program, for every environment that it makes.

If several set the same key, the first of these counts: flags (of ``headgate run``, and of
spark-submit as ``--conf spark.headgate.KEY=…``), environment variables (``HEADGATE__A_B__C`` is the
key ``a-b.c``), the file ``headgate.yaml`` (in ``HEADGATE_CONF_DIR``, else where the program was
started). What the program itself sets comes before all of them. Law: an
unknown key is reported once, with its place and what was probably meant, or is refused
(``headgate.strict``).
"""

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headgate.base.errors import SettingsInvalid, SettingsUnknown
from headgate.base.known_settings import unknown_settings
from headgate.base.settings import JobSettings
from headgate.spark.cluster import cluster_of
from headgate.spark.connect import connect_session

log = logging.getLogger(__name__)

FILE: Final = "headgate.yaml"
FOLDER_VARIABLE: Final = "HEADGATE_CONF_DIR"
VARIABLE_PREFIX: Final = "HEADGATE__"
SPARK_PREFIX: Final = "spark.headgate."

_flags: dict[str, str] = {}
_warned: set[str] = set()
"""Unknown keys that a warning has named."""


def set_flags(flags: Mapping[str, str]) -> None:
    """What the command line says; called by ``headgate run`` before the user's program."""
    _flags.clear()
    _flags.update({key.removeprefix(SPARK_PREFIX): text for key, text in flags.items()})


def check_known(texts: Mapping[str, str]) -> None:
    """Warn of unknown keys, each once; in strict mode raises SettingsUnknown."""
    unknown = {setting.key: str(setting) for setting in unknown_settings(texts)}
    if unknown and JobSettings.parse(texts).strict:
        problems = [f"{text} It stands in {place_of(key)}" for key, text in unknown.items()]
        raise SettingsUnknown(list(unknown), problems)
    for key, text in unknown.items():
        if key not in _warned:
            _warned.add(key)
            log.warning("%s It stands in %s, and has no effect", text, place_of(key))


def place_of(key: str) -> str:
    """Where this key is set, in words."""
    if key in _flags:
        return "the flags of the command"
    if key in read_spark():
        return f"Spark's configuration, as {SPARK_PREFIX}{key}"
    for name in os.environ:
        if name.startswith(VARIABLE_PREFIX) and key in read_variables({name: ""}):
            return f"the environment variable {name}"
    folder = os.environ.get(FOLDER_VARIABLE)
    with suppress(SettingsInvalid):  # the file may be gone by now
        if key in read_folder(folder):
            return str(Path(folder or ".", FILE))
    return "the program's Configuration"


def given_settings() -> dict[str, str]:
    """The settings of all sources together."""
    return {
        **read_folder(os.environ.get(FOLDER_VARIABLE)),
        **read_variables(os.environ),
        **read_spark(),
        **_flags,
    }


def read_folder(folder: str | None) -> dict[str, str]:
    """The settings in this folder's file; without a folder, in that of the working directory."""
    path = Path(folder or ".", FILE)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not folder:
            return {}
        raise SettingsInvalid(FOLDER_VARIABLE, f"there is no {path}; write it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(str(path), f"cannot be read: {error}") from error
    return read_yaml(text, str(path))


def read_yaml(text: str, name: str) -> dict[str, str]:
    """Keys may be written flat (``parallelism.default: 2``) or one in the other."""
    import yaml

    try:
        tree = yaml.load(text, Loader=yaml.BaseLoader)  # all texts: `off` stays `off`
    except yaml.YAMLError as error:
        raise SettingsInvalid(name, f"is no YAML: {error}") from error
    if not tree:
        return {}
    if not isinstance(tree, dict):
        raise SettingsInvalid(name, "holds no keys; write lines like parallelism.default: 2")
    return dict(_flat(tree, ""))


def read_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """``HEADGATE__EXECUTION__BUFFER_TIMEOUT__INTERVAL`` is execution.buffer-timeout.interval."""
    return {
        _key(name.removeprefix(VARIABLE_PREFIX)): text
        for name, text in variables.items()
        if name.startswith(VARIABLE_PREFIX)
    }


def read_spark() -> dict[str, str]:
    """The settings of a session that runs, or that spark-submit is about to start; else none."""
    in_use = "pyspark" in sys.modules
    if not in_use and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    pairs = _spark_pairs()
    return {
        key.removeprefix(SPARK_PREFIX): text for key, text in pairs if key.startswith(SPARK_PREFIX)
    }


def _spark_pairs() -> Iterable[tuple[str, str]]:
    if (session := connect_session()) is not None:
        return cluster_of(session).configuration().items()
    try:
        from pyspark import SparkConf, SparkContext
    except ImportError:  # a PySpark for Spark Connect alone
        return ()
    context = SparkContext._active_spark_context
    if context is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return ()
    if context is None:
        SparkContext._ensure_initialized()  # the JVM runs already and knows spark-submit's flags
    return (SparkConf() if context is None else context.getConf()).getAll()


def _key(name: str) -> str:
    return name.lower().replace("__", ".").replace("_", "-")


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        match value:
            case dict():
                yield from _flat(value, f"{prefix}{key}.")
            case list():
                yield f"{prefix}{key}", ",".join(map(str, value))
            case "":
                continue  # a key without a value
            case _:
                yield f"{prefix}{key}", str(value)
