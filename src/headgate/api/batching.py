"""Batch jobs on keyed streams: operators get their records key by key.

Law: a step is settled when its graph is built, so a program is written the same way for streaming
and batch.
"""

from collections.abc import Callable
from functools import partial

from headgate.api.draft import Factory, KeyOf, Settled
from headgate.core.operators.sorted_input import SortedInput


def sorted_in_batch(factory: Factory, *keys_of: KeyOf | None) -> Callable[[Settled], Factory]:
    """For an operator on keyed streams; ``keys_of``: the selector of each input, None: no keys."""

    def make(settled: Settled) -> Factory:
        if not settled.batch:
            return factory
        return partial(SortedInput, factory, keys_of, settled.sort_bytes)

    return make
