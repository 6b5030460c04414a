"""What streams and sinks can say about their operator: name, parallelism, chaining, slots."""

import re
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headgate.api.checks import check_text
from headgate.api.draft import Transformation
from headgate.api.settings.configuration import check_bound, check_parallelism
from headgate.base.errors import PlanInvalid
from headgate.functions.error_policy import ErrorPolicy
from headgate.plan.stream_graph import Chaining

_Self = TypeVar("_Self", bound="OperatorSettings")


_UID_HASH = re.compile(r"[0-9a-f]{32}")


class OperatorSettings:
    """Base of what stands for an operator; every method returns the object itself."""

    def _transformation(self, caller: str) -> Transformation:
        """The operator that is meant; raises if there is none."""
        raise NotImplementedError

    def name(self: _Self, name: str) -> _Self:
        """What plans, errors and metrics call the operator."""
        self._transformation("name").name = check_text(name, "name")
        return self

    def get_name(self) -> str:
        return self._transformation("get_name").name

    def uid(self: _Self, uid: str) -> _Self:
        """The operator's own id, by which a changed program finds its state again."""
        self._transformation("uid").uid = check_text(uid, "uid")
        return self

    def set_uid_hash(self: _Self, uid_hash: str) -> _Self:
        """An id that an earlier run was given: 32 hexadecimal digits."""
        if not _UID_HASH.fullmatch(check_text(uid_hash, "set_uid_hash")):
            raise PlanInvalid(
                f"set_uid_hash() was given {uid_hash!r}; give 32 hexadecimal digits, or use uid()"
            )
        self._transformation("set_uid_hash").uid = uid_hash
        return self

    def set_description(self: _Self, description: str) -> _Self:
        """A longer text for the plan."""
        self._transformation("set_description").description = check_text(
            description, "set_description"
        )
        return self

    def on_error(self: _Self, policy: ErrorPolicy) -> _Self:
        """What becomes of records that the operator's functions fail for, or it cannot read.

        ``ErrorPolicy.FAIL`` fails the job, the default; ``SKIP`` leaves such records out and counts
        them; ``dead_letters(tag)`` emits a DeadLetter for each, see ``get_side_output``.
        """
        if not isinstance(policy, ErrorPolicy):
            raise PlanInvalid(
                f"on_error() was given {policy!r}; give ErrorPolicy.FAIL, ErrorPolicy.SKIP or "
                f"ErrorPolicy.dead_letters(tag)"
            )
        self._transformation("on_error").on_error = policy
        return self

    def set_parallelism(self: _Self, parallelism: int) -> _Self:
        """How many tasks run the operator side by side."""
        transformation = self._transformation("set_parallelism")
        check_parallelism(parallelism, "parallelism", transformation.name)
        if transformation.is_non_parallel and parallelism != 1:
            raise PlanInvalid(
                f"runs in one task only, so its parallelism cannot be {parallelism}; "
                f"set the parallelism of the operator after it",
                transformation.name,
            )
        check_bound(parallelism, transformation.max_parallelism or -1, transformation.name)
        transformation.parallelism = parallelism
        return self

    def set_max_parallelism(self: _Self, max_parallelism: int) -> _Self:
        """The number of key groups; keep it, and the operator can be scaled up to it."""
        transformation = self._transformation("set_max_parallelism")
        check_parallelism(max_parallelism, "maximum parallelism", transformation.name)
        check_bound(transformation.parallelism or -1, max_parallelism, transformation.name)
        transformation.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self: _Self) -> _Self:
        """One task, whatever is said later."""
        transformation = self._transformation("force_non_parallel")
        transformation.parallelism = transformation.max_parallelism = 1
        transformation.is_non_parallel = True
        return self

    def set_buffer_timeout(self: _Self, timeout_millis: int) -> _Self:
        """How long records may wait for others on their way to the next task; -1: until full."""
        transformation = self._transformation("set_buffer_timeout")
        transformation.buffer_timeout_ms = check_timeout(timeout_millis, transformation.name)
        return self

    def start_new_chain(self: _Self) -> _Self:
        """Do not share a task with the operator before."""
        self._transformation("start_new_chain").chaining = Chaining.HEAD
        return self

    def disable_chaining(self: _Self) -> _Self:
        """Do not share a task with any other operator."""
        self._transformation("disable_chaining").chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self: _Self, slot_sharing_group: "str | SlotSharingGroup") -> _Self:
        """Share slots only with operators of this group; those downstream follow."""
        self._transformation("slot_sharing_group").group = group_name(slot_sharing_group)
        return self


def check_timeout(timeout_millis: int, whose: str) -> int:
    """A buffer timeout."""
    if type(timeout_millis) is int and timeout_millis >= -1:
        return timeout_millis
    raise PlanInvalid(
        f"{whose}: the buffer timeout is {timeout_millis!r}; "
        f"give milliseconds, 0 for at once, or -1 to send full buffers only"
    )


@dataclass(frozen=True, slots=True, order=True)
class MemorySize:
    """A number of bytes: ``MemorySize.of_mebi_bytes(64)``."""

    bytes_size: int

    def __post_init__(self) -> None:
        if type(self.bytes_size) is not int or self.bytes_size < 0:
            raise PlanInvalid(
                f"MemorySize() was given {self.bytes_size!r}; give a whole number, 0 or more"
            )

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> "MemorySize":
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Whole ones, as the other units."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        return self.bytes_size >> 40

    def __str__(self) -> str:
        """In the largest unit of which it is a whole number: ``64 mb``."""
        number, units = self.bytes_size, list(_UNITS)
        while number and number % 1024 == 0 and len(units) > 1:
            number //= 1024
            units.pop(0)
        return f"{number} {units[0]}"


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """Operators of one group share slots, those of two groups never do.

    Resources are kept for PyFlink's sake; what a slot has is Spark's to say. A group that has any
    has cores and heap memory; other memory is then 0 unless it is given.
    """

    name: str
    resources: dict[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_text(self.name, "SlotSharingGroup")
        for resource, amount in self.resources.items():
            if amount < 0 or (amount == 0 and resource in _REQUIRED):
                least = "above 0" if resource in _REQUIRED else "0 or more"
                raise PlanInvalid(
                    f"the slot sharing group {self.name!r} was given {amount:g} as {resource}; "
                    f"give a number that is {least}"
                )

    def get_name(self) -> str:
        return self.name

    def get_cpu_cores(self) -> float | None:
        """None: nothing was said."""
        return self.resources.get("cpu_cores")

    def get_task_heap_memory(self) -> MemorySize | None:
        return self._memory("task_heap_memory_mb")

    def get_task_off_heap_memory(self) -> MemorySize | None:
        return self._memory("task_off_heap_memory_mb")

    def get_managed_memory(self) -> MemorySize | None:
        return self._memory("managed_memory_mb")

    def get_external_resources(self) -> dict[str, float]:
        return {name: much for name, much in self.resources.items() if name not in _OWN}

    def _memory(self, resource: str) -> MemorySize | None:
        mebi_bytes = self.resources.get(resource)
        return None if mebi_bytes is None else MemorySize(int(mebi_bytes * (1 << 20)))

    @staticmethod
    def builder(name: str) -> "SlotSharingGroup.Builder":
        return SlotSharingGroup.Builder(name)

    class Builder:
        """``SlotSharingGroup.builder("models").set_cpu_cores(2).build()``."""

        def __init__(self, name: str) -> None:
            self._group = SlotSharingGroup(name)

        def set_cpu_cores(self, cpu_cores: float) -> "SlotSharingGroup.Builder":
            return self._with("cpu_cores", cpu_cores)

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> "SlotSharingGroup.Builder":
            return self._with("task_heap_memory_mb", _mebi_bytes(task_heap_memory))

        def set_task_off_heap_memory(
            self, task_off_heap_memory: MemorySize
        ) -> "SlotSharingGroup.Builder":
            return self._with("task_off_heap_memory_mb", _mebi_bytes(task_off_heap_memory))

        def set_managed_memory(self, managed_memory: MemorySize) -> "SlotSharingGroup.Builder":
            return self._with("managed_memory_mb", _mebi_bytes(managed_memory))

        def set_managed_memory_mb(self, managed_memory_mb: int) -> "SlotSharingGroup.Builder":
            return self._with("managed_memory_mb", managed_memory_mb)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> "SlotSharingGroup.Builder":
            return self._with("task_heap_memory_mb", task_heap_memory_mb)

        def set_task_off_heap_memory_mb(
            self, task_off_heap_memory_mb: int
        ) -> "SlotSharingGroup.Builder":
            return self._with("task_off_heap_memory_mb", task_off_heap_memory_mb)

        def set_external_resource(self, name: str, value: float) -> "SlotSharingGroup.Builder":
            return self._with(name, value)

        def build(self) -> "SlotSharingGroup":
            resources = self._group.resources
            if not resources:
                return self._group
            if missing := [name for name in _REQUIRED if name not in resources]:
                raise PlanInvalid(
                    f"the slot sharing group {self._group.name!r} has {', '.join(resources)} and "
                    f"no {' and no '.join(missing)}; set cores and task heap memory, or no "
                    f"resources at all"
                )
            rest = {name: 0.0 for name in _OWN if name not in _REQUIRED}
            return replace(self._group, resources={**rest, **resources})

        def _with(self, resource: str, amount: float) -> "SlotSharingGroup.Builder":
            resources = {**self._group.resources, resource: float(amount)}
            self._group = replace(self._group, resources=resources)
            return self


def group_name(group: str | SlotSharingGroup) -> str:
    """A group is meant by its name or by itself."""
    return group.name if isinstance(group, SlotSharingGroup) else SlotSharingGroup(group).name


_UNITS = ("bytes", "kb", "mb", "gb", "tb")
_REQUIRED = ("cpu_cores", "task_heap_memory_mb")
"""What a group with resources must have."""
_OWN = (*_REQUIRED, "task_off_heap_memory_mb", "managed_memory_mb")


def _mebi_bytes(size: MemorySize) -> float:
    if isinstance(size, MemorySize):
        return size.bytes_size / (1 << 20)
    raise PlanInvalid(f"memory was given as {size!r}; give a MemorySize")
