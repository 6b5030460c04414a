"""Client libraries of connectors, which are loaded when a connector is used, and what they say.

Law: a library that is not installed is named in one sentence with the command that installs it.
The words of a library are one line without secrets, and a clause can follow them: a full stop of
the library's would stand before our semicolon.
"""

import re
from importlib import import_module
from typing import Any, Final

from headgate.base.errors import PlanInvalid
from headgate.base.extras import install_command
from headgate.base.object_store import s3_problem
from headgate.base.redaction import without_secrets

MOST_CHARS: Final = 1000
"""The longest text of a library's error that is shown: some stores answer with pages."""


def library(module: str, extra: str, user: str) -> Any:
    """A module of the client library that ``extra`` of Headgate installs; ``user`` needs it.

    ::

        confluent_kafka = library("confluent_kafka", "kafka", "KafkaSource")
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            package = error.name  # the library is there, and one that it needs is not
        raise PlanInvalid(
            f"{user} needs {package.replace('_', '-')}, which cannot be loaded here ({error}); "
            f"run {install_command(extra)}"
        ) from error


def clause(text: object) -> str:
    """The words of an error, in one line, without secrets and without the stop at their end.

    ::

        f"{whose}: {clause(error)}; check the address"
    """
    return without_secrets(" ".join(str(text).split()).rstrip(" .;:"))


def words(error: BaseException) -> str:
    """An error of a library in a line, with its class and without colours."""
    text = clause(" ".join(_COLOUR.sub("", str(error)).split())[:MOST_CHARS])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def reason(error: BaseException, advice: str) -> str:
    """Why, and what to do, as messages end; an object store's answer in a few words."""
    problem, cure = s3_problem(str(error))
    if problem:
        return f"{problem}; {cure}"
    return f"{getattr(error, 'strerror', None) or words(error)}; {advice}"


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
