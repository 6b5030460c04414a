"""The words of the barrier handler."""

import dataclasses
from typing import get_args

import pytest

from headgate.base.events import CheckpointBarrier
from headgate.core.checkpoint import alignment
from headgate.core.checkpoint.alignment import Block, Effect, TakeSnapshot


def test_effect_names_every_kind_of_effect() -> None:
    kinds = {
        kind
        for name, kind in vars(alignment).items()
        if dataclasses.is_dataclass(kind)
        and kind.__module__ == alignment.__name__
        and not name.startswith("_")
    }
    assert set(get_args(Effect)) == kinds


def test_effects_are_values() -> None:
    assert Block(1) == Block(1) != Block(2)
    take = TakeSnapshot(CheckpointBarrier(1, 0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        take.barrier = CheckpointBarrier(2, 0)  # type: ignore[misc]
