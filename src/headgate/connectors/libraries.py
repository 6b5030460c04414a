"""Client libraries of connectors, which are loaded when a connector is used and not before.

Law: one that is not installed is told in one sentence with the command that installs it.
"""

from importlib import import_module
from typing import Any

from headgate.base.errors import PlanInvalid
from headgate.base.extras import install_command


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
