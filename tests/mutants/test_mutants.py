"""The planted bugs fit today's source; whether tests find them is what `make mutants` tells."""

import ast
from collections import Counter

import pytest

from tests.mutants.mutant import PACKAGE, ROOT, Mutant, Stale
from tests.mutants.table import MUTANTS


def name_of(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_mutant_fits_the_source_and_still_compiles(mutant: Mutant) -> None:
    before = mutant.source()
    after = mutant.mutated(before)
    assert after != before
    ast.parse(after)


def test_tests_that_are_to_catch_mutants_exist() -> None:
    named = {
        word.split("::")[0]
        for mutant in MUTANTS
        for word in mutant.caught_by.split()
        if not mutant.caught_by.startswith("sim ")
    }
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_there_are_sixty_mutants_and_each_name_is_of_one() -> None:
    assert len(MUTANTS) >= 60
    assert [name for name, times in Counter(map(name_of, MUTANTS)).items() if times > 1] == []


def test_mutant_whose_text_has_gone_or_stands_twice_is_stale() -> None:
    mutant = Mutant("name", "core/mail.py", "x > 1", "x > 2", "nothing", "tests")
    assert mutant.mutated("if x > 1:") == "if x > 2:"
    for text in ("if x > 3:", "if x > 1 or x > 1:"):
        with pytest.raises(Stale, match=r"core/mail\.py has this text [02] times"):
            mutant.mutated(text)


def test_planting_changes_the_copy_alone(tmp_path) -> None:
    mutant = MUTANTS[0]
    copy = tmp_path / PACKAGE / mutant.path
    copy.parent.mkdir(parents=True)
    copy.write_text(mutant.source(), encoding="utf-8")
    mutant.plant(tmp_path)
    assert copy.read_text(encoding="utf-8") == mutant.mutated(mutant.source())
