"""Slot sharing groups: which operators may run in the same slot."""

from dataclasses import dataclass, field, replace

from headgate.api.checks import check_text


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

    @staticmethod
    def builder(name: str) -> "SlotSharingGroup.Builder":
        return SlotSharingGroup.Builder(name)

    class Builder:
        """``SlotSharingGroup.builder("models").set_cpu_cores(2).build()``."""

        def __init__(self, name: str) -> None:
            self._group = SlotSharingGroup(name)

        def set_cpu_cores(self, cpu_cores: float) -> "SlotSharingGroup.Builder":
            return self._with("cpu_cores", cpu_cores)

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
