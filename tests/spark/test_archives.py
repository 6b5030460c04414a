"""Archives of real jobs: written when they end, and never a reason for a job to fail."""

import json
import logging
from pathlib import Path

import pytest

from headgate.common import Configuration
from headgate.datastream import StreamExecutionEnvironment
from headgate.observe.history.archive import decode_archive, decode_header
from headgate.spark.archives import await_archives
from tests.spark.cluster import until
from tests.spark.programs import fail_at

pytestmark = pytest.mark.usefixtures("spark")


def archiving(folder: Path) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("jobmanager.archive.fs.dir", str(folder))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def test_a_job_that_has_ended_can_still_be_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archives"
    env = archiving(folder)
    env.from_collection(range(10)).map(fail_at(7)).name("careful").add_sink(lambda value: None)
    with pytest.raises(Exception, match="7 is bad"):
        env.execute("numbers")
    await_archives(60)
    (path,) = folder.iterdir()
    data = path.read_bytes()
    header = decode_header(path.name, data)
    assert (header.job["name"], header.job["state"]) == ("numbers", "FAILED")
    answers = {name: json.loads(answer) for name, answer in decode_archive("a", [data]).items()}
    assert answers[""]["state"] == "FAILED"
    assert [failure["operator"] for failure in answers["/exceptions"]["exceptions"]] == ["careful"]
    assert answers["/config"]["settings"]["jobmanager.archive.fs.dir"] == str(folder)
    vertices = [vertex["id"] for vertex in answers[""]["vertices"]]
    assert all(answers[f"/vertices/{number}"]["subtasks"] for number in vertices)

    env = archiving(tmp_path / "of frames")
    rows = env.from_collection([(1,), (2,)]).to_dataframe("n long")
    assert rows.count() == 2
    until(lambda: any((tmp_path / "of frames").glob("*.archive.gz")), 60)
    await_archives(60)
    (path,) = (tmp_path / "of frames").iterdir()
    assert decode_header(path.name, path.read_bytes()).job["state"] == "FINISHED"

    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    env = archiving(blocked)
    env.from_collection([1]).add_sink(lambda value: None)
    with caplog.at_level(logging.WARNING):
        env.execute("unlucky")
        await_archives(60)
    (warning,) = [record for record in caplog.records if record.name == "headgate.spark.archives"]
    assert "job unlucky has no archive" in warning.getMessage()
    assert "a file stands where a folder must be" in warning.getMessage()
