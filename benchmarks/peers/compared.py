"""What ``bench peers`` compares: all ordinary programs, and two keyed counts."""

from functools import partial
from typing import Final

from benchmarks.keyed_count import add_counts, as_pair, picked_words, word_of
from benchmarks.measured_job import PICKED, first_place
from benchmarks.ordinary_programs import PROGRAMS, Emit, OrdinaryProgram, Records, greatest
from headgate.api.datastream import DataStream


def words(count: int, task: int) -> Records:
    """The picked words over and over; each task begins at another place."""
    picked, at = picked_words(), first_place(task)
    return ((picked[at:] + picked[:at]) * (count // PICKED + 1))[:count]


def with_length(word: str) -> tuple[str, int]:
    return word, len(word)


def count_words(found: DataStream) -> DataStream:
    return found.map(as_pair).key_by(word_of).reduce(add_counts)


def count_lengths(found: DataStream) -> DataStream:
    return found.map(with_length).key_by(word_of).reduce(add_counts)


def counts_plain(has_length: bool, found: Records, emit: Emit) -> None:
    pair_of = with_length if has_length else as_pair
    counts: dict[str, tuple[str, int]] = {}
    for word in found:
        pair = pair_of(word)
        key = word_of(pair)
        before = counts.get(key)
        counts[key] = pair if before is None else add_counts(before, pair)
        emit(counts[key])


COMPARED: Final[dict[str, OrdinaryProgram]] = {
    "count-words": OrdinaryProgram(
        "(word, 1), a running count",
        *(words, count_words, partial(counts_plain, False), greatest, 8_000_000),
    ),
    "count-lengths": OrdinaryProgram(
        "(word, len(word)), a running sum",
        *(words, count_lengths, partial(counts_plain, True), greatest, 8_000_000),
    ),
    **PROGRAMS,
}
