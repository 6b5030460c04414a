"""Errors of state backends: what the disk or a missing package makes impossible.

HeadgateError
├── StateUnstorable    RocksDB cannot keep state in its folder
└── BackendMissing     the package of a state backend is not installed
"""

from headgate.base.errors import HeadgateError


class StateUnstorable(HeadgateError):
    """RocksDB cannot open, write or read its files: the disk is full, the folder read-only."""

    def __init__(self, folder: str, problem: str, operator: str = "") -> None:
        whose = f"the state of operator {operator!r}" if operator else "state"
        super().__init__(
            f"{whose} cannot be kept in {folder}: {problem}; make room there, or name another "
            f"folder with state.backend.rocksdb.localdir"
        )
        self.folder = folder
        self.problem = problem
        self.operator = operator


class BackendMissing(HeadgateError):
    """The setting of the state backend asks for a package that is not there."""

    def __init__(self, where: str = "here") -> None:
        super().__init__(
            f"state.backend.type is rocksdb, and rocksdict is not installed {where}; "
            f"run pip install 'headgate[rocksdb]', or set it to hashmap"
        )
