"""What tests of DataFrames share."""

from collections.abc import Iterator

import pytest

from headgate.spark.dataframe.frame_job import FrameJob
from headgate.spark.submission import on_action_begun


@pytest.fixture
def begun() -> Iterator[list[FrameJob]]:
    """The actions of a test."""
    jobs: list[FrameJob] = []
    on_action_begun.append(jobs.append)
    yield jobs
    on_action_begun.remove(jobs.append)
