"""Small jobs for the tests of control: vertices in a row, each connected all to all."""

from headgate.base.messages import ChannelOrder, ControlTimes, Failure, OutputOrder, TaskOrder
from headgate.control.deployment import RunPlan

TIMES = ControlTimes(register_ms=5_000, settle_ms=100, cancel_ms=1_000)
BOOM = Failure("ValueError", "boom", operator="map", traceback="Traceback …\nboom")
PEER_LOST = Failure("PeerLost", "peer 10.0.0.1:1: reset", is_consequence=True)


def address(slot: int) -> tuple[str, int]:
    return "127.0.0.1", 4000 + slot


def row_of_vertices(vertices: int, parallelism: int) -> tuple[TaskOrder, ...]:
    """Vertex 0 → 1 → …; subtask i of each runs in slot i."""
    tasks = []
    for vertex in range(vertices):
        for subtask in range(parallelism):
            channels = tuple(
                ChannelOrder(f"p{vertex - 1}.{producer}", subtask, f"{vertex - 1}.{producer}")
                for producer in range(parallelism)
            )
            last = vertex == vertices - 1
            output = OutputOrder(f"p{vertex}.{subtask}", "PIPELINED_BOUNDED", parallelism)
            tasks.append(
                TaskOrder(
                    f"{vertex}.{subtask}",
                    vertex,
                    subtask,
                    subtask,
                    () if last else (output,),
                    (channels,) if vertex else (),
                )
            )
    return tuple(tasks)


def plan(vertices: int = 2, parallelism: int = 2, *, batch: bool = False) -> RunPlan:
    tasks = row_of_vertices(vertices, parallelism)
    return RunPlan("job/0/0", "orders", tasks, parallelism, b"code", 3, {"k": "v"}, batch)
