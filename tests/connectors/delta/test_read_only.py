"""Delta tables that cannot be written for a while: a sentence, and nothing is lost."""

import pytest

from tests.connectors.lake_kit import commit_to_read_only, memory_folder

pytest.importorskip("deltalake")

from tests.connectors.delta import kit


@pytest.mark.parametrize("job", list(kit.JOBS))
def test_a_folder_that_is_read_only_is_named_and_costs_no_record(job: str) -> None:
    make_sink, make_record, _ = kit.JOBS[job]
    with memory_folder() as folder:
        kit.prepare(folder)
        commit, write = commit_to_read_only(make_sink, make_record, folder)
        assert "it does not take a commit: " in commit and "Permission denied" in commit
        assert commit.endswith("; check its address, rights and space")
        assert str(folder) in write and "cannot be written: " in write
        assert "Permission denied" in write and "rights and space" in write
        assert "\n" not in commit + write
        assert sorted(kit.numbers(folder / "table")) == [0, 1, 2]
