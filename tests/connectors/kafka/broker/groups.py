"""Consumer groups: members, their turns at joining and syncing, and committed offsets.

Law: offsets that were committed in a transaction are seen when it is committed, and never if it
is aborted. Membership lives in memory only: after a restart of the broker, consumers join again.
"""

import asyncio
from dataclasses import dataclass, field

from tests.connectors.kafka.broker import errors

FIRST_JOIN_S = 0.05
"""How long the first member of a group waits for others."""

Offset = tuple[int, str | None]
Partition = tuple[str, int]


@dataclass
class Member:
    name: str
    protocols: list[tuple[str, bytes]]
    session_s: float
    rebalance_s: float
    seen_s: float
    joined: "asyncio.Future[None] | None" = None
    synced: "asyncio.Future[bytes] | None" = None
    assignment: bytes = b""


@dataclass
class Group:
    offsets: dict[Partition, Offset] = field(default_factory=dict)
    pending: dict[int, dict[Partition, Offset]] = field(default_factory=dict)
    """By producer, until its transaction ends."""
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    is_joining: bool = False
    is_syncing: bool = False
    join_by_s: float = 0.0

    def end_offsets(self, producer: int, commit: bool) -> None:
        pending = self.pending.pop(producer, {})
        if commit:
            self.offsets.update(pending)

    def unstable(self) -> set[Partition]:
        return {partition for pending in self.pending.values() for partition in pending}


class GroupCoordinator:
    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._made = 0

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def check(self, name: str, generation: int, member: str) -> int:
        """The error code for what a member asks of its group."""
        group = self.group(name)
        if generation < 0 and not member:
            return errors.NONE  # a consumer that assigns partitions to itself
        if member not in group.members:
            return errors.UNKNOWN_MEMBER_ID
        group.members[member].seen_s = _now()
        return errors.NONE if generation == group.generation else errors.ILLEGAL_GENERATION

    async def join(
        self,
        name: str,
        member: str,
        protocols: list[tuple[str, bytes]],
        session_ms: int,
        rebalance_ms: int,
    ) -> tuple[int, str]:
        """Waits until the group is complete; error code and the member's name."""
        group = self.group(name)
        if member and member not in group.members:
            return errors.UNKNOWN_MEMBER_ID, member
        if not member:
            self._made += 1
            member = f"member-{self._made}"
        times = (session_ms / 1000, rebalance_ms / 1000, _now())
        found = group.members.setdefault(member, Member(member, protocols, *times))
        found.protocols, found.seen_s = protocols, _now()
        if not group.is_joining:
            wait_s = FIRST_JOIN_S if len(group.members) == 1 else found.rebalance_s
            self._begin(group, wait_s)
        joined = found.joined = asyncio.get_running_loop().create_future()
        self._complete(group)
        await joined
        return errors.NONE, member

    async def sync(
        self, name: str, generation: int, member: str, assignments: dict[str, bytes]
    ) -> tuple[int, bytes]:
        group = self.group(name)
        code = self.check(name, generation, member)
        if code or group.is_joining:
            return code or errors.REBALANCE_IN_PROGRESS, b""
        found = group.members[member]
        if member == group.leader:
            group.is_syncing = False
            for other in group.members.values():
                other.assignment = assignments.get(other.name, b"")
                if other.synced is not None and not other.synced.done():
                    other.synced.set_result(other.assignment)
        if not group.is_syncing:
            return errors.NONE, found.assignment
        synced = found.synced = asyncio.get_running_loop().create_future()
        try:
            return errors.NONE, await synced
        except asyncio.CancelledError:
            return errors.REBALANCE_IN_PROGRESS, b""

    def heartbeat(self, name: str, generation: int, member: str) -> int:
        code = self.check(name, generation, member)
        if not code and self.group(name).is_joining:
            return errors.REBALANCE_IN_PROGRESS
        return code

    def leave(self, name: str, member: str) -> int:
        group = self.group(name)
        if member not in group.members:
            return errors.UNKNOWN_MEMBER_ID
        self._remove(group, member)
        return errors.NONE

    def expire(self) -> None:
        """Members that were not heard of are gone; joining ends in time."""
        now_s = _now()
        for group in self.groups.values():
            for member in list(group.members.values()):
                if member.joined is None and member.seen_s + member.session_s < now_s:
                    self._remove(group, member.name)
            if group.is_joining and now_s >= group.join_by_s:
                for member in [m for m in group.members.values() if m.joined is None]:
                    del group.members[member.name]
                self._complete(group)

    def _remove(self, group: Group, member: str) -> None:
        found = group.members.pop(member)
        for future in (found.joined, found.synced):
            if future is not None and not future.done():
                future.cancel()
        if group.members and not group.is_joining:
            self._begin(group, max(m.rebalance_s for m in group.members.values()))
        self._complete(group)

    def _begin(self, group: Group, wait_s: float) -> None:
        group.is_joining, group.join_by_s = True, _now() + wait_s
        for member in group.members.values():
            if member.synced is not None and not member.synced.done():
                member.synced.cancel()

    def _complete(self, group: Group) -> None:
        """If all members are back, they are a new generation."""
        waiting = [member.joined for member in group.members.values()]
        is_early = group.generation == 0 and _now() < group.join_by_s
        if not group.is_joining or not waiting or None in waiting or is_early:
            return
        group.generation += 1
        group.is_joining, group.is_syncing = False, True
        group.leader = next(iter(group.members))
        shared = set.intersection(*({n for n, _ in m.protocols} for m in group.members.values()))
        names = [name for name, _ in group.members[group.leader].protocols if name in shared]
        group.protocol = names[0] if names else ""
        for member in group.members.values():
            joined, member.joined, member.synced = member.joined, None, None
            if joined is not None and not joined.done():
                joined.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
