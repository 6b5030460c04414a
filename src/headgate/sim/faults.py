"""Faults: what happens to the network and the workers, at the steps that the scenario names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Protocol

from headgate.base.checkpoints import Stop
from headgate.base.ids import ChannelId, PartitionId
from headgate.core.exchange.frames import (
    MAGIC,
    NONCE_BYTES,
    PREFIX,
    VERSION,
    LinkHello,
    PartitionRequest,
    encode,
)
from headgate.sim.network import Network, Wire
from headgate.sim.worker import SimWorker

PATIENCE_STEPS = 20
STRANGER = "stranger"
STOPS: Final = {"savepoint": Stop.NO, "suspend": Stop.SUSPEND, "drain": Stop.DRAIN}
"""Faults that stand for what people do to a job."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to the network, a worker or the job at a step of the run."""

    kind: str
    step: int
    lasts_ms: float = 0


class Victims(Protocol):
    """The driver of a run and its tasks, as far as faults and people concern them."""

    def names(self) -> list[str]: ...

    def cancel_task(self, name: str) -> None: ...

    def worker_lost(self, worker: SimWorker) -> None: ...

    def die(self) -> None: ...

    def hang_up(self) -> SimWorker | None: ...

    def savepoint(self, stop: Stop) -> None: ...


class Faults:
    """Carries faults out; remembers whom they have hit, so that errors can be explained."""

    def __init__(
        self,
        faults: list[Fault],
        network: Network,
        workers: list[SimWorker],
        victims: Victims,
        random: Random,
    ) -> None:
        self.frozen: list[str] = []
        """Workers that once were frozen for longer than their peers' patience."""
        self.struck: list[str] = []
        self._faults = sorted(faults, key=lambda fault: fault.step)
        self.network = network
        self._workers = workers
        self._victims = victims
        self._random = random
        self._acts: dict[str, Callable[[Fault], str]] = {
            "cut": self._cut,
            "stall": self._stall,
            "freeze": self._freeze,
            "doze": self._doze,
            "refuse": self._refuse,
            "black-hole": self._black_hole,
            "cancel": self._cancel,
            "kill": self._kill,
            "stranger": self._stranger,
            "driver": self._driver,
            "hang-up": self._hang_up,
            **dict.fromkeys(STOPS, self._savepoint),
        }

    @property
    def left(self) -> list[Fault]:
        """The faults whose time has not come."""
        return list(self._faults)

    def next_due(self, step: int) -> Fault | None:
        """The fault whose step has come, if any."""
        if self._faults and self._faults[0].step <= step:
            return self._faults.pop(0)
        return None

    def strike(self, fault: Fault, step: int) -> str:
        """Let it happen; says to whom. With nobody to strike it waits for a better moment."""
        if fault.kind in ("cut", "stall") and self._some_wire() is None:
            self._faults.append(replace(fault, step=step + PATIENCE_STEPS))
            self._faults.sort(key=lambda fault: fault.step)
            return "waits, nobody is connected"
        self.struck.append(fault.kind)
        return self._acts[fault.kind](fault)

    def _cut(self, fault: Fault) -> str:
        wire = self._some_wire()
        assert wire is not None
        wire.cut(self.network.pause_ms(), self.network.pause_ms())
        return wire.name

    def _stall(self, fault: Fault) -> str:
        wire = self._some_wire()
        assert wire is not None
        up, down = self._random.choice(((True, True), (True, False), (False, True)))
        wire.stall(up, down)
        return f"{wire.name}, {'up' if up else ''} {'down' if down else ''}"

    def _freeze(self, fault: Fault) -> str:
        worker = self._random.choice(self._workers)
        self.frozen.append(worker.name)
        return self._stop(worker, fault)

    def _doze(self, fault: Fault) -> str:
        return self._stop(self._random.choice(self._workers), fault)

    def _stop(self, worker: SimWorker, fault: Fault) -> str:
        if worker.frozen:
            return f"{worker.name} is frozen or dead already"
        worker.frozen = True
        worker.clock.later(fault.lasts_ms, f"{worker.name} thaws", worker.thaw)
        return f"{worker.name} for {fault.lasts_ms:.0f} ms"

    def _refuse(self, fault: Fault) -> str:
        name = self._random.choice(self._workers).name
        self.network.refused.append(name)
        return name

    def _black_hole(self, fault: Fault) -> str:
        """The next connection is never answered."""
        self.network.swallows += 1
        return "the next connection"

    def _cancel(self, fault: Fault) -> str:
        name = self._random.choice(self._victims.names())
        self._victims.cancel_task(name)
        return name

    def _kill(self, fault: Fault) -> str:
        worker = self._random.choice(self._workers)
        if not worker.dead:
            self.frozen.append(worker.name)
            self.network.refused.append(worker.name)
            worker.die()
            self._victims.worker_lost(worker)
        return worker.name

    def _driver(self, fault: Fault) -> str:
        self._victims.die()
        return ""

    def _hang_up(self, fault: Fault) -> str:
        """The driver and a worker lose their connection, and the worker ends itself."""
        worker = self._victims.hang_up()
        if worker is None:
            return "nobody is left"
        self.network.refused.append(worker.name)
        self.frozen.append(worker.name)
        return worker.name

    def _savepoint(self, fault: Fault) -> str:
        """Somebody wants one."""
        self._victims.savepoint(STOPS[fault.kind])
        return ""

    def _stranger(self, fault: Fault) -> str:
        """Somebody connects and talks nonsense, or nothing."""
        worker = self._random.choice(self._workers)
        wire = self.network.wire(STRANGER, worker.name)
        wire.up.tap = None
        wire.up.write([self._nonsense()])
        wire.up.finish("it closed the connection")
        worker.waiting.append(wire)
        return f"at {worker.name}"

    def _nonsense(self) -> bytes:
        random = self._random
        noise = random.randbytes(random.randint(0, 60))
        hello = LinkHello(0, 1, random.randbytes(NONCE_BYTES))
        request = PartitionRequest(ChannelId(0), 5, 0, PartitionId("source0/0#0"))
        prefix = PREFIX.pack(
            random.choice((0, 100, 1 << 31)), MAGIC, VERSION, random.randint(0, 50)
        )
        return random.choice((noise, encode(hello) + noise, encode(request), prefix + noise))

    def _some_wire(self) -> Wire | None:
        """One between workers that is in use and has met no fault yet."""
        used: list[Wire] = []
        for worker in self._workers:
            for connection in [] if worker.dead else worker.connections:
                wire = connection.wire
                is_strange = wire.consumer == STRANGER
                if wire not in used and not wire.fault and wire.is_whole and not is_strange:
                    used.append(wire)
        return self._random.choice(used) if used else None
