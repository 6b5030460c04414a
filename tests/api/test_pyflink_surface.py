"""PyFlink's public names and signatures are Headgate's, but for those on a list with reasons.

The comparison itself runs where ``apache-flink`` is installed (``PYFLINK_SOURCES`` may name the
folder of its package instead); that it finds what it should is shown by a package of a few lines.
"""

import os
from pathlib import Path

import pytest

from tests.api.pyflink_surface import (
    differences,
    expected_differences,
    exported_names,
    installed_pyflink,
    missing_names,
    stale,
    stored_names,
    unexpected,
)

PAGE = Path(__file__).parents[2] / "docs/coming-from-pyflink.md"


def test_nothing_differs_from_pyflink_but_what_the_list_says() -> None:
    named = os.environ.get("PYFLINK_SOURCES")
    root = Path(named) if named else installed_pyflink()
    if root is None:
        pytest.skip("PyFlink is not installed: pip install apache-flink")
    found, expected = differences(root), expected_differences()
    assert not unexpected(found, expected)
    assert not stale(found, expected)
    assert stored_names() == exported_names(root)


def test_each_name_that_pyflink_exports_is_here_or_on_the_page() -> None:
    stored = stored_names()
    assert sum(map(len, stored.values())) > 300
    page = PAGE.read_text(encoding="utf-8")
    assert missing_names(stored, page) == []
    without = page.replace("HybridSource", "Both").replace("`Semantic`", "Semantic")
    assert missing_names(stored, without) == [
        "datastream.connectors.hybrid_source.HybridSource",
        "datastream.connectors.hybrid_source.HybridSourceBuilder",
        "datastream.connectors.kafka.Semantic",
    ]


def test_each_difference_that_is_meant_to_be_has_a_reason() -> None:
    expected = expected_differences()
    assert len(expected) > 50
    assert all(expected.values())


def test_comparison_finds_names_parameters_defaults_and_chains_that_differ(tmp_path: Path) -> None:
    room = tmp_path / "common"
    room.mkdir()
    (room / "types.py").write_text(
        "__all__ = ['Row', 'Column']\n"
        "BOUND = 1\n"
        "class Row:\n"
        "    def __init__(self, *args, **kwargs): ...\n"
        "    def as_dict(self, deep=False): ...\n"
        "    def set_row_kind(self, row_kind):\n"
        "        return self\n"
        "    def get_row_kind(self): ...\n"
        "    def _inside(self): ...\n"
    )
    (room / "nowhere.py").write_text("")
    (tmp_path / "datastream").mkdir()
    (tmp_path / "metrics").mkdir()
    assert differences(tmp_path) == {
        "common.nowhere": "no such module",
        "common.types.BOUND": "no such name",
        "common.types.Column": "no such name",
        "common.types.Row.as_dict": "parameter 0 is 'recursive', not 'deep'",
        "common.types.Row.set_row_kind": "returns None, not the object itself",
    }


def test_difference_that_is_covered_is_expected_and_a_line_without_one_is_stale() -> None:
    found = {"common.io": "no such module", "common.types.Row.new": "no such name"}
    assert unexpected(found, {"common.io": "Java"}) == {"common.types.Row.new": "no such name"}
    assert unexpected(found, {"common.*": "all of it"}) == {}
    assert stale(found, {"common.types": "below it", "metrics": "gone"}) == ["metrics"]
