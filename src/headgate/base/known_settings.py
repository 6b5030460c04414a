"""Finds settings that have no effect, and suggests what their author may have meant.

A key is known if it is Headgate's own, or one of Flink 2.3's (older spellings among them) or of
Spark's that Headgate passes over on purpose. Of the latter letters may be large or small: names of
environment variables do not keep them. A section of Flink's in which Headgate has no key of its own
is listed by its prefix, of the others every key, so that a misspelt key of ours is not taken for
one of Flink's. Law: no key of ours begins like a section.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from headgate.base.setting_fields import FORMER_KEYS
from headgate.base.settings import describe_settings

ALIKE: Final = 0.75
"""How much of a key must be right for a suggestion, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class UnknownSetting:
    """A key that has no effect."""

    key: str
    suggestion: str = ""
    """The known key that comes nearest; empty: none comes near."""

    def __str__(self) -> str:
        if self.suggestion:
            return f"{self.key} is no setting; did you mean {self.suggestion}?"
        return f"{self.key} is no setting of Headgate's, PyFlink's or Spark's."


def unknown_settings(keys: Iterable[str]) -> list[UnknownSetting]:
    """The keys that have no effect, in their order, each with a suggestion."""
    return [UnknownSetting(key, suggestion_for(key)) for key in keys if not is_known(key)]


def is_known(key: str) -> bool:
    """Whether the key is ours, or is ignored on purpose."""
    small = key.lower()
    is_read = key in _own_keys() or key in FORMER_KEYS
    return is_read or small in _PASSED_OVER or small.startswith(SECTIONS)


def suggestion_for(key: str) -> str:
    """The known key that comes nearest; empty if none comes near."""
    small = key.lower()
    found = get_close_matches(small, [*_own_keys(), *KEYS], 1, ALIKE)
    return ELSEWHERE.get(small) or (found[0] if found else "")


@lru_cache(maxsize=1)
def _own_keys() -> tuple[str, ...]:
    return tuple(key for key, _, _ in describe_settings())


SECTIONS: Final = tuple(
    """
spark. table. sql-client. sql-gateway. kubernetes. yarn. high-availability. pekko. akka. env.
web. historyserver. dstl. cluster. slotmanager. slot. blob. resourcemanager. queryable-state. query.
classloader. fs. s3. s3a. oss. gs. azure. hadoop. presto. flink. containerized. mesos. zookeeper.
recovery. user. process. client. jobstore. job-result-store. job-event. slow-task-detector.
completed-application-store. application-result-store. plugin. library-cache-manager. compiler.
local. minicluster. events. traces. jmx. log. io. timerservice. shuffle-service-factory.
jobmanager.adaptive-scheduler. jobmanager.adaptive-batch-scheduler. jobmanager.memory.
jobmanager.partition. jobmanager.web. metrics.internal. metrics.reporter. metrics.scope.
rest.cache. rest.client. rest.flamegraph. rest.profiling. rest.retry. rest.server.
security.delegation. security.kerberos. security.ssl.rest. state.backend.changelog.
state.backend.forst. state.backend.latency-track. state.backend.rocksdb.compaction.
state.backend.rocksdb.log. state.backend.rocksdb.manual-compaction. state.backend.rocksdb.metrics.
state.changelog.dstl. state.latency-track. state.size-track. execution.async-state.
execution.batch. execution.checkpointing.file-merging. pipeline.watermark-alignment.
taskmanager.debug. taskmanager.memory.framework. taskmanager.memory.jvm-overhead.
taskmanager.memory.task. taskmanager.network.adaptive-partitioner.
taskmanager.network.hybrid-shuffle. taskmanager.network.netty. taskmanager.runtime.
taskmanager.system-out.
""".split()  # noqa: SIM905 - as a list of literals it would be three times as long
)
"""Beginnings of keys that are never ours."""
KEYS: Final = frozenset(
    """
execution.allow-client-job-configurations execution.attached execution.batch-shuffle-mode
execution.batch-state-backend.enabled execution.buffer-timeout.enabled
execution.checkpointing.approximate-local-recovery
execution.checkpointing.checkpoints-after-tasks-finish
execution.checkpointing.checkpoints-after-tasks-finish.enabled
execution.checkpointing.cleaner.parallel-mode execution.checkpointing.create-subdir
execution.checkpointing.during-recovery.enabled execution.checkpointing.interval-during-backlog
execution.checkpointing.local-backup.dirs execution.checkpointing.local-backup.enabled
execution.checkpointing.snapshot-compression
execution.checkpointing.unaligned.interruptible-timers.enabled
execution.checkpointing.unaligned.max-subtasks-per-channel-state-file
execution.checkpointing.unaligned.recover-output-on-downstream.enabled
execution.checkpointing.write-buffer-size execution.job-listeners
execution.job-status-changed-listeners execution.program-config.enabled
execution.program-config.wildcards execution.savepoint-restore-mode
execution.shutdown-on-application-finish execution.shutdown-on-attached-exit
execution.sort-keyed-partition.memory execution.sort-partition.memory
execution.sorted-inputs.enabled execution.state-recovery.approximate-local-recovery
execution.state-recovery.claim-mode execution.state-recovery.from-local
execution.submit-failed-job-on-application-error execution.target
execution.terminate-application-on-any-job-terminated-exceptionally
heartbeat.rpc-failure-threshold
jobmanager.execution.attempts-history-size jobmanager.execution.failover-strategy
jobmanager.failure-enrichers jobmanager.future-pool.size jobmanager.io-pool.size jobmanager.job
jobmanager.resource-id jobmanager.retrieve-taskmanager-hostname
jobmanager.rpc.bind-port jobmanager.scheduler metrics.fetcher.update-interval
metrics.job.status.enable metrics.latency.granularity metrics.latency.history-size
metrics.reporters metrics.system-resource metrics.system-resource-probing-interval
pipeline.cached-files pipeline.classpaths pipeline.closure-cleaner-level pipeline.force-avro
pipeline.force-kryo pipeline.force-kryo-avro pipeline.generic-types pipeline.jars
pipeline.jobvertex-parallelism-overrides
pipeline.operator-chaining.chain-operators-with-different-max-parallelism
pipeline.serialization-config pipeline.sources.pause-until-first-checkpoint
pipeline.vertex-description-mode pipeline.vertex-name-include-index-prefix
python.client.executable python.execution-environment python.execution-mode
python.fn-execution.arrow.batch.size python.fn-execution.buffer.memory.size
python.fn-execution.bundle.size python.fn-execution.bundle.time
python.fn-execution.framework.memory.size python.fn-execution.memory.managed
python.fn-execution.streaming.enabled python.job-options
python.map-state.iterate-response-batch-size python.map-state.read-cache-size
python.map-state.write-cache-size python.metric.enabled python.operator-chaining.enabled
python.profile.enabled python.pythonpath python.state.cache-size python.systemenv.enabled
rest.address rest.async.store-duration rest.await-leader-timeout rest.connection-timeout
rest.idleness-timeout rest.url-prefix
security.context.factory.classes security.keytab
security.module.factory.classes security.principal security.ssl.algorithms
security.ssl.close-notify-flush-timeout security.ssl.handshake-timeout
security.ssl.internal.cert.fingerprint security.ssl.internal.close-notify-flush-timeout
security.ssl.internal.handshake-timeout security.ssl.internal.key-password
security.ssl.internal.keystore security.ssl.internal.keystore-password
security.ssl.internal.keystore-type security.ssl.internal.session-cache-size
security.ssl.internal.session-timeout security.ssl.internal.truststore
security.ssl.internal.truststore-password security.ssl.internal.truststore-type
security.ssl.key-password security.ssl.keystore security.ssl.keystore-password
security.ssl.protocol security.ssl.provider security.ssl.session-cache-size
security.ssl.session-timeout security.ssl.truststore security.ssl.truststore-password
security.ssl.verify-hostname
state.backend.fs.write-buffer-size state.backend.local-recovery
state.backend.rocksdb.block.blocksize state.backend.rocksdb.block.cache-size
state.backend.rocksdb.block.metadata-blocksize state.backend.rocksdb.bloom-filter.bits-per-key
state.backend.rocksdb.bloom-filter.block-based-mode
state.backend.rocksdb.checkpoint.transfer.thread.num state.backend.rocksdb.compression.per.level
state.backend.rocksdb.files.open
state.backend.rocksdb.incremental-restore-async-compact-after-rescale
state.backend.rocksdb.memory.fixed-per-slot state.backend.rocksdb.memory.fixed-per-tm
state.backend.rocksdb.memory.high-prio-pool-ratio state.backend.rocksdb.memory.managed
state.backend.rocksdb.memory.partitioned-index-filters state.backend.rocksdb.options-factory
state.backend.rocksdb.predefined-options
state.backend.rocksdb.rescaling.use-delete-files-in-range
state.backend.rocksdb.restore-overlap-fraction-threshold
state.backend.rocksdb.timer-service.cache-size state.backend.rocksdb.timer-service.factory
state.backend.rocksdb.use-bloom-filter state.backend.rocksdb.use-ingest-db-restore-mode
state.backend.rocksdb.write-batch-size state.backend.rocksdb.writebuffer.count
state.backend.rocksdb.writebuffer.number-to-merge state.backend.rocksdb.writebuffer.size
state.checkpoint.cleaner.parallel-mode state.checkpoints.create-subdir
state.storage.fs.write-buffer-size task.cancellation-interval
task.cancellation.interval task.cancellation.timers.timeout taskmanager.collect-sink.port
taskmanager.cpu.cores taskmanager.data.bind-port taskmanager.data.ssl.enabled taskmanager.host
taskmanager.jvm-exit-on-oom taskmanager.load-balance.mode taskmanager.log.path
taskmanager.maxRegistrationDuration taskmanager.memory.flink.size
taskmanager.memory.jvm-metaspace.size taskmanager.memory.managed.consumer-weights
taskmanager.memory.managed.fraction taskmanager.memory.managed.size
taskmanager.memory.process.size taskmanager.memory.size taskmanager.memory.starting-segment-size
taskmanager.net.client.connectTimeoutSec taskmanager.network.bind-policy
taskmanager.network.compression.codec taskmanager.network.detailed-metrics
taskmanager.network.memory.buffers-request-timeout
taskmanager.network.memory.exclusive-buffers-request-timeout-ms
taskmanager.network.memory.read-buffer.required-per-gate.max
taskmanager.network.partition-request-timeout taskmanager.network.retries
taskmanager.network.sort-shuffle.min-buffers
taskmanager.network.tcp-connection.enable-reuse-across-jobs taskmanager.numberOfTaskSlots
taskmanager.registration.timeout taskmanager.resource-id taskmanager.rpc.bind-port
taskmanager.rpc.port taskmanager.slot.timeout taskmanager.state.local.root-dirs
taskmanager.tmp.dirs
state.changelog.max-failures-allowed state.changelog.periodic-materialize.enabled
state.changelog.periodic-materialize.interval state.changelog.storage
""".split()  # noqa: SIM905 - as a list of literals it would be three times as long
)
ELSEWHERE: Final = {"rest.bind-port": "rest.port"}
"""Keys of Flink's that Headgate does not read, with the ones to use instead."""
_PASSED_OVER: Final = frozenset(key.lower() for key in KEYS)
