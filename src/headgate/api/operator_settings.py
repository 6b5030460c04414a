"""What streams and sinks can say about their operator: name, parallelism, chaining, slots."""

import re
from typing import TypeVar

from headgate.api.checks import check_text
from headgate.api.draft import Step
from headgate.api.settings.configuration import check_bound, check_parallelism
from headgate.api.slots import SlotSharingGroup, group_name
from headgate.base.errors import PlanInvalid
from headgate.plan.stream_graph import Chaining

_Self = TypeVar("_Self", bound="OperatorSettings")
_UID_HASH = re.compile(r"[0-9a-f]{32}")


class OperatorSettings:
    """Base of what stands for an operator; every method returns the object itself."""

    def _step(self, caller: str) -> Step:
        """The operator that is meant; raises if there is none."""
        raise NotImplementedError

    def name(self: _Self, name: str) -> _Self:
        """What plans, errors and metrics call the operator."""
        self._step("name").name = check_text(name, "name")
        return self

    def get_name(self) -> str:
        return self._step("get_name").name

    def uid(self: _Self, uid: str) -> _Self:
        """The operator's own id, by which a changed program finds its state again."""
        self._step("uid").uid = check_text(uid, "uid")
        return self

    def set_uid_hash(self: _Self, uid_hash: str) -> _Self:
        """An id that an earlier run was given: 32 hexadecimal digits."""
        if not _UID_HASH.fullmatch(check_text(uid_hash, "set_uid_hash")):
            raise PlanInvalid(
                f"set_uid_hash() was given {uid_hash!r}; give 32 hexadecimal digits, or use uid()"
            )
        self._step("set_uid_hash").uid = uid_hash
        return self

    def set_description(self: _Self, description: str) -> _Self:
        """A longer text for the plan."""
        self._step("set_description").description = check_text(description, "set_description")
        return self

    def set_parallelism(self: _Self, parallelism: int) -> _Self:
        """How many tasks run the operator side by side."""
        step = self._step("set_parallelism")
        check_parallelism(parallelism, "parallelism", step.name)
        if step.is_non_parallel and parallelism != 1:
            raise PlanInvalid(
                f"runs in one task only, so its parallelism cannot be {parallelism}; "
                f"set the parallelism of the operator behind it",
                step.name,
            )
        check_bound(parallelism, step.max_parallelism or -1, step.name)
        step.parallelism = parallelism
        return self

    def set_max_parallelism(self: _Self, max_parallelism: int) -> _Self:
        """The number of key groups; keep it, and the operator can be scaled up to it."""
        step = self._step("set_max_parallelism")
        check_parallelism(max_parallelism, "maximum parallelism", step.name)
        check_bound(step.parallelism or -1, max_parallelism, step.name)
        step.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self: _Self) -> _Self:
        """One task, whatever is said later."""
        step = self._step("force_non_parallel")
        step.parallelism = step.max_parallelism = 1
        step.is_non_parallel = True
        return self

    def set_buffer_timeout(self: _Self, timeout_millis: int) -> _Self:
        """How long records may wait for others on their way to the next task; -1: until full."""
        step = self._step("set_buffer_timeout")
        step.buffer_timeout_ms = check_timeout(timeout_millis, step.name)
        return self

    def start_new_chain(self: _Self) -> _Self:
        """Do not share a task with the operator before."""
        self._step("start_new_chain").chaining = Chaining.HEAD
        return self

    def disable_chaining(self: _Self) -> _Self:
        """Do not share a task with any other operator."""
        self._step("disable_chaining").chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self: _Self, slot_sharing_group: str | SlotSharingGroup) -> _Self:
        """Share slots only with operators of this group; those behind follow."""
        self._step("slot_sharing_group").group = group_name(slot_sharing_group)
        return self


def check_timeout(timeout_millis: int, whose: str) -> int:
    """A buffer timeout."""
    if type(timeout_millis) is int and timeout_millis >= -1:
        return timeout_millis
    raise PlanInvalid(
        f"{whose}: the buffer timeout is {timeout_millis!r}; "
        f"give milliseconds, 0 for at once, or -1 to send full buffers only"
    )
