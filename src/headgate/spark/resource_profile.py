"""Resource profiles of Spark: what each task of a job gets, such as cores and GPUs.

Spark has two kinds. One asks for executors of its own, which come only under dynamic allocation,
and that has no barrier stages. The other asks for resources of tasks alone, which the executors of
the session have to have. Law: a profile that no stage of a job could use is refused before Spark
runs anything of it.
"""

import logging
from typing import Any

from headgate.base.errors import PlanInvalid

log = logging.getLogger(__name__)


def adopted_profile(context: Any, profile: object) -> object | None:
    """Make it known to Spark, which counts no slots for others; None: a local master has none.

    Raises PlanInvalid.
    """
    from py4j.protocol import Py4JJavaError

    if str(context.master).startswith("local"):
        log.warning("the job's resource profile has no effect on the master %s", context.master)
        return None
    wanted: Any = profile
    if wanted.executorResources:
        names = ", ".join(wanted.executorResources)
        raise PlanInvalid(
            f"the job's resource profile asks for executors with {names}, which Spark starts under "
            f"dynamic allocation only, and that runs no barrier stages; ask for resources of tasks "
            f"alone, and give executors theirs with the session (spark.executor.cores, "
            f"spark.executor.resource.gpu.amount)"
        )
    try:
        wanted = _java_backed(context, wanted)
        java = wanted._java_resource_profile
        context._jsc.sc().resourceProfileManager().addResourceProfile(java)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).strip()
        raise PlanInvalid(f"Spark refuses the job's resource profile: {reason}") from error
    found: object = wanted
    return found


def task_cores(profile: object) -> int:
    """How many cores a task gets; 0: as many as those of the session."""
    wanted: Any = profile
    request = wanted.taskResources.get("cpus")
    return 0 if request is None else int(request.amount)


def _java_backed(context: Any, profile: Any) -> Any:
    """One that was made before the session has no half in Java yet."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    if profile._java_resource_profile is not None:
        return profile
    requests = TaskResourceRequests(context._jvm, profile.taskResources)
    return ResourceProfileBuilder().require(requests).build
