"""The metrics of operators that make asynchronous calls, one by one or in batches."""

from typing import Final

from headgate.base.figures import AsyncFigures, BatchFigures
from headgate.observe.metric_family import MetricFamily

ASYNC_FAMILIES: Final[tuple[MetricFamily[AsyncFigures], ...]] = (
    MetricFamily(
        "headgate_async_capacity_calls",
        "Asynchronous calls that the operator may have at the same time.",
        lambda calls: calls.capacity,
    ),
    MetricFamily(
        "headgate_async_in_flight_calls",
        "Asynchronous calls that it has, with those whose results have not left.",
        lambda calls: calls.in_flight,
        flink="queueSize",
    ),
    MetricFamily(
        "headgate_async_full_seconds_total",
        "Time in which records have waited for a place among the calls.",
        lambda calls: calls.full_ms / 1000,
    ),
)

BATCH_FAMILIES: Final[tuple[MetricFamily[BatchFigures], ...]] = (
    MetricFamily(
        "headgate_async_batch_calls_total",
        "Calls for batches of records that have begun, with those that were made again.",
        lambda batches: batches.calls,
    ),
    MetricFamily(
        "headgate_async_batch_records_total",
        "Records in these calls; divided by the calls, the size of a batch.",
        lambda batches: batches.records,
    ),
    MetricFamily(
        "headgate_async_batch_in_flight_calls",
        "Calls for batches that have begun and not ended.",
        lambda batches: batches.in_flight,
    ),
    MetricFamily(
        "headgate_async_throttled_seconds_total",
        "Time in which a batch was ready while the rate limit, or the server, allowed no call.",
        lambda batches: batches.throttled_ms / 1000,
    ),
    MetricFamily(
        "headgate_async_refused_calls_total",
        "Calls that the server has refused because there were too many.",
        lambda batches: batches.refused,
    ),
    MetricFamily(
        "headgate_async_retried_calls_total",
        "Calls that the retry strategy has made again.",
        lambda batches: batches.retries,
    ),
    MetricFamily(
        "headgate_async_split_batches_total",
        "Failed batches that were halved, to find the records that fail.",
        lambda batches: batches.splits,
    ),
    MetricFamily(
        "headgate_async_failed_records_total",
        "Records without a result, after all retries.",
        lambda batches: batches.failures,
    ),
    MetricFamily(
        "headgate_async_cache_hits_total",
        "Records that were answered without a call of their own.",
        lambda batches: batches.cache_hits,
    ),
    MetricFamily(
        "headgate_async_cache_misses_total",
        "Records whose key was not in the cache.",
        lambda batches: batches.cache_misses,
    ),
)
