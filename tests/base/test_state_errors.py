"""Errors of state backends: the tree is whole, they travel, they say what to do."""

import inspect
import pickle

import pytest

from headgate.base import state_errors
from headgate.base.errors import HeadgateError
from headgate.base.state_errors import BackendMissing, StateUnstorable

ERRORS = [
    (StateUnstorable("f", "disk full", "sum"), "the state of operator 'sum' cannot be kept in f"),
    (StateUnstorable("f", "read-only"), "name another folder with state.backend.rocksdb.localdir"),
    (BackendMissing("in a worker"), "pip install 'headgate[rocksdb]'"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_an_error_says_what_to_do_and_travels(error: HeadgateError, words: str) -> None:
    assert words in str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


def test_the_tree_on_top_names_every_error() -> None:
    kinds = [
        name
        for name, kind in inspect.getmembers(state_errors, inspect.isclass)
        if kind.__module__ == state_errors.__name__
    ]
    assert kinds
    assert all(f"─ {name} " in (state_errors.__doc__ or "") for name in kinds)
