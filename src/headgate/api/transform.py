"""A pipeline as one step of a chain of Spark's own: ``df.transform(headgate.transform, …)``.

Law: nothing runs before an action on the result, and each call has an environment of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

from headgate.api.datastream import DataStream
from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.row import Row
from headgate.api.settings.configuration import Configuration
from headgate.base.errors import PlanInvalid


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
