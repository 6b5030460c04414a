"""The page about DataFrames shows programs that run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "dataframes.md"


def test_programs_of_the_page_run(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    java = spark._jvm.java.lang.System  # type: ignore[union-attr] # it runs
    java.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    text = PAGE.read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(program, str(PAGE), "exec"), {"__name__": "page"})
    out = capsys.readouterr().out
    for shown in re.findall(r"```text\n(.*?)```", text, re.DOTALL):
        assert shown in out
    words = out.replace(" ", "")
    assert "|be|2|" in words and "|that|1|" in words and "|to|2|" in words
