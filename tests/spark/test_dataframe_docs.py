"""The page about DataFrames shows a program that runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "dataframes.md"


def test_program_of_the_page_runs(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), {"__name__": "page"})
    words = capsys.readouterr().out.replace(" ", "")
    assert "|be|2|" in words and "|that|1|" in words and "|to|2|" in words
