"""Uids: the same for the same program, and as steady as can be when it grows."""

import pytest
from hypothesis import given

from headgate.base.errors import PlanInvalid
from headgate.plan.stream_graph import StreamGraph, stable_uids
from tests.plan.programs import Program, programs, reads, renumbered


@given(programs())
def test_uids_are_unique_and_do_not_depend_on_the_ids_of_nodes(graph: StreamGraph) -> None:
    uids = stable_uids(graph)
    assert sorted(uids) == sorted(graph.nodes)
    assert len(set(uids.values())) == len(uids)
    assert all(len(uid) == 32 for uid in uids.values())
    again = stable_uids(renumbered(graph, 1000))
    assert {node - 1000: uid for node, uid in again.items()} == uids


def test_uids_stay_what_they_are() -> None:
    """State is stored by uid: another one would lose it."""
    program = Program()
    program.sink("sink", reads(program.source(), number=1, tag="late"))
    assert list(stable_uids(program.graph).values()) == [
        "48cbe87d9707ffea254554be1c4a40a4",
        "ca9025a9c2cdc97e0e6907db5e75743b",
    ]


def test_a_uid_that_was_given_wins_and_moves_no_other() -> None:
    def uids(uid: str | None, extra: bool) -> list[str]:
        program = Program()
        first = program.source("first", uid=uid)
        second = program.source("second")
        program.sink("sink", first, second)
        if extra:
            program.sink("extra", program.operator("more", first))
        return list(stable_uids(program.graph).values())[:3]

    plain = uids(None, False)
    assert uids("mine", False) == ["mine", *plain[1:]]
    assert uids(None, True) == plain


def test_two_operators_with_one_uid_are_both_named() -> None:
    program = Program()
    source = program.source("words", uid="a")
    program.sink("print", source, uid="a")
    with pytest.raises(PlanInvalid) as caught:
        stable_uids(program.graph)
    assert str(caught.value) == (
        "operator 'print' has the uid 'a', which 'words' has already; "
        "give each operator a uid of its own"
    )
