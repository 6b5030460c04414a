"""Words of client libraries inside our own sentences."""

from collections.abc import Callable

import pytest

from headgate.connectors.kafka.client import error_words
from headgate.connectors.libraries import clause
from headgate.connectors.postgres.client import first_line


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Error 111 at host:1. Refused.", "Error 111 at host:1. Refused"),
        ("one\n  line\n", "one line"),
        ("and so on ...", "and so on"),
        ("why:", "why"),
        ("5.0", "5.0"),
        ("", ""),
    ],
)
def test_a_clause_is_one_line_without_a_stop_at_its_end(said: str, expected: str) -> None:
    assert clause(said) == expected


@pytest.mark.parametrize("words", [error_words, first_line])
def test_connectors_say_what_their_clients_say_as_a_clause(
    words: Callable[[BaseException], str],
) -> None:
    assert words(OSError("the line\nis dead.")).endswith("the line is dead")
