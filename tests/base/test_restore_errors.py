"""Errors of restoring: the tree is whole, they travel, they say what to do."""

import inspect
import pickle

import pytest

from headgate.base import restore_errors
from headgate.base.errors import HeadgateError
from headgate.base.restore_errors import (
    ChannelsDiffer,
    CheckpointUnsound,
    FinishedAlready,
    KeyGroupsDiffer,
    ProgramDiffers,
    RestoreRefused,
    StateUnclaimed,
)

ERRORS = [
    (RestoreRefused(7, "it is wrong"), "the job cannot go on from checkpoint 7: it is wrong"),
    (ProgramDiffers(7, "words"), "it is of job 'words'"),
    (StateUnclaimed(7, ("operator 'a'", "operator 'b'")), "state of operator 'a', operator 'b'"),
    (KeyGroupsDiffer(7, "sum", 128, 256), "call set_max_parallelism(128)"),
    (ChannelsDiffer(7, "from 'a' to 'b'", "b is gone"), "take a savepoint with the old program"),
    (FinishedAlready(7, "sum", "'a' had not"), "operator 'sum' had finished there, and 'a' had"),
    (CheckpointUnsound(7, "it has task 0.0 twice"), "go on from another checkpoint"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_an_error_says_what_to_do_and_travels(error: HeadgateError, words: str) -> None:
    assert words in str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


def test_the_tree_on_top_names_every_error() -> None:
    kinds = [
        name
        for name, kind in inspect.getmembers(restore_errors, inspect.isclass)
        if kind.__module__ == restore_errors.__name__
    ]
    assert kinds
    assert all(f"─ {name} " in (restore_errors.__doc__ or "") for name in kinds)
