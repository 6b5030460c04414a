"""Mutants of barriers, alignment, bytes in flight and the coordinator."""

from tests.mutants.mutant import Mutant

CHECKPOINTS = (
    Mutant(
        "barrier-forwarded-before-alignment",
        "core/checkpoint/alignment.py",
        "        elif not pending.missing:\n            effects += self._take(pending, now_ms)\n"
        "        return effects\n\n    def _take(",
        "        elif len(pending.missing) < 2:\n"
        "            effects += self._take(pending, now_ms)\n"
        "        return effects\n\n    def _take(",
        "a snapshot is taken while a channel still owes its barrier",
        "tests/core/checkpoint/test_alignment.py",
    ),
    Mutant(
        "aligned-channel-not-blocked",
        "core/checkpoint/alignment.py",
        "        if pending.taken or len(pending.missing) == 1:\n",
        "        if pending.taken or len(pending.missing) <= 2:\n",
        "records after a barrier are in the snapshot, and come again after a restore",
        "tests/core/checkpoint/test_alignment.py",
    ),
    Mutant(
        "ended-channel-awaited",
        "core/checkpoint/alignment.py",
        "        self._live.pop(channel, None)\n",
        "",
        "checkpoints wait for the barrier of a channel that has ended",
        "tests/core/checkpoint/test_alignment.py",
    ),
    Mutant(
        "older-checkpoint-not-given-up",
        "core/checkpoint/alignment.py",
        "if older < checkpoint and not other.taken:",
        "if older < checkpoint and other.taken:",
        "checkpoints are taken out of their order",
        "tests/core/checkpoint/test_alignment.py",
    ),
    Mutant(
        "overtaking-a-moment-late",
        "core/checkpoint/alignment.py",
        "return at_ms is not None and at_ms <= now_ms",
        "return at_ms is not None and at_ms < now_ms",
        "a timer comes in time and is not acted upon",
        "tests/core/checkpoint/test_alignment.py",
    ),
    Mutant(
        "unread-bytes-forgotten",
        "core/checkpoint/inputs.py",
        "parts = record.parts[channel] = [bytes(unread)] if unread else []\n"
        "        record.size += len(unread)\n",
        "parts = record.parts[channel] = []\n",
        "an unaligned checkpoint loses an element that has begun",
        "tests/core/checkpoint/test_recording.py",
    ),
    Mutant(
        "recording-goes-on-after-the-barrier",
        "core/checkpoint/inputs.py",
        "                ended = True\n                break\n",
        "                ended = True\n",
        "what waits after a barrier is in the checkpoint, and comes twice",
        "tests/core/checkpoint/test_recording.py",
    ),
    Mutant(
        "data-after-the-barrier-recorded",
        "core/egress/partition.py",
        "            at = number\n            break\n",
        "            at = number\n",
        "what was written after an aligned barrier is in the checkpoint when that overtakes",
        "tests/core/egress/test_overtaking.py",
    ),
    Mutant(
        "staged-records-after-the-barrier",
        "core/egress/writer.py",
        "        self._finish_buffers()\n        chosen = ",
        "        chosen = ",
        "records that were emitted before an unaligned barrier are not in its checkpoint",
        "tests/core/egress/test_overtaking.py",
    ),
    Mutant(
        "begun-element-forgotten",
        "core/ingress/deserializer.py",
        "        return begun + bytes(self._view[self._at :])\n",
        "        return bytes(self._view[self._at :])\n",
        "the beginning of an element that spans buffers is not in the checkpoint",
        "tests/core/ingress/test_deserializer.py",
    ),
    Mutant(
        "begun-length-of-the-rest",
        "core/buffers/buffer.py",
        "LENGTH.pack(len(gathered) + missing) + bytes(gathered)",
        "LENGTH.pack(missing) + bytes(gathered)",
        "a restored element is cut at a wrong place",
        "tests/core/ingress/test_deserializer.py",
    ),
    Mutant(
        "complete-before-the-outputs",
        "core/checkpoint/task_checkpoints.py",
        "        if self._out.is_sent(checkpoint):\n",
        "        if self._out.is_sent(checkpoint) or taken.arrived == []:\n",
        "a part is written before its last barrier has left: what it would overtake is missing",
        "tests/core/checkpoint/test_task_checkpoints.py",
    ),
    Mutant(
        "barrier-sent-after-one-reader",
        "core/checkpoint/outputs.py",
        "        if waiting.subpartitions:\n            return []\n        del self._waiting",
        "        if len(waiting.subpartitions) > 1:\n            return []\n"
        "        del self._waiting",
        "a barrier counts as sent while one subpartition still holds it",
        "tests/core/checkpoint/test_outputs.py",
    ),
    Mutant(
        "aborted-barrier-still-awaited",
        "core/checkpoint/outputs.py",
        "        for barriers in self._barriers:\n            barriers.given_up(checkpoint)\n",
        "",
        "the barrier of an aborted checkpoint overtakes data nevertheless",
        "tests/core/checkpoint/test_outputs.py",
    ),
    Mutant(
        "commit-before-the-checkpoint-is-stored",
        "control/checkpoint_coordinator.py",
        "        return [StoreCheckpoint(metadata, pending.options.directory, "
        "pending.options.stop.ends)]\n",
        "        return [\n"
        "            *self._tell_all(CheckpointCompleted(self._run, pending.checkpoint)),\n"
        "            StoreCheckpoint(metadata, pending.options.directory, "
        "pending.options.stop.ends),\n"
        "        ]\n",
        "sinks commit what a lost driver would write again",
        "tests/control/test_checkpoint_coordinator.py",
    ),
    Mutant(
        "whole-without-its-last-task",
        "control/pending_checkpoint.py",
        "return len(self.states) == len(self.tasks.members)",
        "return len(self.states) >= max(1, len(self.tasks.members) - 1)",
        "a checkpoint is stored without the state of one task",
        "tests/control/test_pending_checkpoint.py",
    ),
    Mutant(
        "drained-job-goes-on",
        "control/stopping.py",
        "breaks = self._savepoint[1] is Stop.DRAIN",
        "breaks = False",
        "tasks whose event time has ended are taken for tasks that may go on",
        "tests/control/test_stopping.py",
    ),
    Mutant(
        "savepoint-subsumed",
        "control/checkpoint_coordinator.py",
        "if pending.checkpoint < checkpoint and not pending.is_savepoint:",
        "if pending.checkpoint < checkpoint:",
        "a savepoint that somebody waits for is dropped by a newer checkpoint",
        "tests/control/test_checkpoint_coordinator.py",
    ),
    Mutant(
        "tolerable-failures-off-by-one",
        "control/checkpoint_coordinator.py",
        "        if self._failures <= tolerable:\n",
        "        if self._failures < tolerable:\n",
        "the run fails one failed checkpoint too early",
        "tests/control/test_checkpoint_coordinator.py",
    ),
    Mutant(
        "pause-ignored",
        "control/checkpoint_coordinator.py",
        "or max(due_ms, self._paused_until_ms) > now_ms:",
        "or due_ms > now_ms:",
        "the next checkpoint begins within the minimum pause",
        "tests/control/test_checkpoint_coordinator.py",
    ),
    Mutant(
        "checkpoint-number-given-twice",
        "control/checkpoint_history.py",
        "self._next = max(next_id, max(starts, default=0) + 1)",
        "self._next = max(next_id, max(starts, default=0))",
        "the first checkpoint after a restore overwrites the one that was restored",
        "tests/control/test_checkpoint_history.py",
    ),
    Mutant(
        "log-forgets-a-newer-checkpoint",
        "control/checkpoint_history.py",
        "del self._ended[min(self._ended)]",
        "del self._ended[next(iter(self._ended))]",
        "a checkpoint that was stored late takes the place of a newer one in what people see",
        "tests/control/test_checkpoint_log.py",
    ),
    Mutant(
        "older-checkpoint-becomes-the-latest",
        "control/checkpoint_history.py",
        "        if self.latest is not None and metadata.checkpoint < "
        "self.latest.metadata.checkpoint:\n            return [DropCheckpoint(metadata)]\n",
        "",
        "a job goes back to before what its sinks have committed",
        "tests/control/test_checkpoint_history.py",
    ),
)
