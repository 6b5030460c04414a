"""State of checkpoints and savepoints, outside jobs: read it, and write savepoints.

``read(path)`` opens a checkpoint or savepoint and gives rows of its states, without Spark;
``write(path, operator("counts").put(descriptor, rows))`` writes a savepoint that a job can start
from, as a whole or as a changed copy of another. As a DataFrame it is read with
``spark.read.format("headgate-state").load(path)``.
"""

from collections.abc import Sequence

from headgate.api.types.types import TypeInformation
from headgate.host.saved_state.changes import OperatorChanges
from headgate.host.saved_state.loading import StandIn
from headgate.host.saved_state.pieces import KeyedRow, OperatorRow, TimerRow
from headgate.host.saved_state.reader import SavedOperator, SavedState, StateFigures, open_state
from headgate.host.saved_state.writer import MAX_PARALLELISM, write_savepoint

__all__ = [
    "KeyedRow",
    "OperatorChanges",
    "OperatorRow",
    "SavedOperator",
    "SavedState",
    "StandIn",
    "StateFigures",
    "TimerRow",
    "operator",
    "read",
    "write",
]


def read(path: str, *, load_classes: bool = False, secret_file: str = "") -> SavedState:
    """The checkpoint or savepoint in this folder; raises CheckpointError.

    Values of your own classes are shown by their parts (``StandIn``), and nothing of the checkpoint
    is run. ``load_classes=True`` imports their modules, as a restore does: for checkpoints that you
    trust. ``secret_file``: the key of the job, to check the signature.
    """
    return open_state(path, loads_classes=load_classes, secret_file=secret_file)


def operator(
    uid: str,
    *,
    key_type: TypeInformation | None = None,
    name: str = "",
    max_parallelism: int | None = None,
) -> OperatorChanges:
    """What is to be written of the operator with this uid: call ``put`` and so on.

    ``key_type`` is that of ``key_by``, ``name`` for people; ``max_parallelism`` counts if the
    operator is new.
    """
    return OperatorChanges(uid, key_type, name, max_parallelism)


def write(
    path: str,
    *operators: OperatorChanges,
    base: str = "",
    remove: Sequence[str] = (),
    max_parallelism: int = MAX_PARALLELISM,
    name: str = "",
    load_classes: bool = False,
    secret_file: str = "",
) -> str:
    """Write a savepoint to the folder ``path``, new or empty; returns its path.

    ``base``: a checkpoint or savepoint that is copied, with the changes; ``remove``: uids of
    operators that are left out. Raises StateUnfit or CheckpointError, and leaves nothing then.
    """
    return write_savepoint(
        path,
        operators,
        base=base,
        remove=remove,
        max_parallelism=max_parallelism,
        name=name,
        loads_classes=load_classes,
        secret_file=secret_file,
    )
