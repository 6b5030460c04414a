"""``headgate run`` in a session that is there, as in a notebook: it costs no JVM of its own."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.conftest import fresh, headgate
from tests.cli.kit import Headgate, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["fresh", "headgate"]

JOB = """
env.from_collection([1, 2]).map(lambda number: number + 40).print()
env.execute("small")
"""


def test_a_job_that_fits_ends_with_0_and_one_that_does_not_with_3(
    tmp_path: Path, spark: "SparkSession", headgate: Headgate
) -> None:
    program = write(tmp_path, JOB)
    done = headgate("run", program, "-p", "1", "--no-progress")
    assert (done.returncode, done.stdout) == (0, "41\n42\n"), done.stderr
    done = headgate("run", program, "-p", "5", "--no-progress")
    assert done.returncode == 3, done.stderr
    assert "the job needs 5 slots" in done.stderr
    assert "org.apache.spark" not in done.stderr
