"""Slot sharing groups: which operators may run in the same slot."""

from dataclasses import dataclass, field, replace

from headgate.api.checks import check_text
from headgate.base.errors import PlanInvalid


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
        return f"{self.bytes_size} bytes"


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """Operators of one group share slots, those of two groups never do.

    Resources are kept for PyFlink's sake; what a slot has is Spark's to say.
    """

    name: str
    resources: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text(self.name, "SlotSharingGroup")

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
            return self._group

        def _with(self, resource: str, amount: float) -> "SlotSharingGroup.Builder":
            resources = {**self._group.resources, resource: float(amount)}
            self._group = replace(self._group, resources=resources)
            return self


def group_name(group: str | SlotSharingGroup) -> str:
    """A group is meant by its name or by itself."""
    return group.name if isinstance(group, SlotSharingGroup) else SlotSharingGroup(group).name


_OWN = frozenset(
    {"cpu_cores", "task_heap_memory_mb", "task_off_heap_memory_mb", "managed_memory_mb"}
)


def _mebi_bytes(size: MemorySize) -> float:
    if isinstance(size, MemorySize):
        return size.bytes_size / (1 << 20)
    raise PlanInvalid(f"memory was given as {size!r}; give a MemorySize")
