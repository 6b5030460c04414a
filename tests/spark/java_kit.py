"""Options for the JVMs of programs that Headgate does not start: spark-submit, daemons, servers."""

import os

from headgate.spark.class_archive import class_archive
from headgate.spark.java import ensure_java, find_java

EXECUTORS = "-Dspark.executor.defaultJavaOptions='"


def jvm_options(variable: str = "SPARK_SUBMIT_OPTS") -> str:
    """What the variable has, and for the JVM and its executors the archive of Spark's classes.

    Also sees to it that Spark's scripts find a Java.
    """
    given = os.environ.get(variable, "")
    java = ensure_java() or find_java().found
    archive = None if java is None else class_archive(java)
    sharing = "" if archive is None else archive.start_options()
    if not sharing:
        return given
    return f"{sharing} {given}".replace(EXECUTORS, f"{EXECUTORS}{sharing} ")
