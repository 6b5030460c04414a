"""A real notebook: the pictures of its cells, and how its jobs get on below them."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

INTERRUPTED = 5
CELLS = (
    """
from headgate.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
squares = env.from_collection(range(100)).key_by(lambda x: x % 7).map(lambda x: x * x)
squares.name("squares")
""",
    """
squares.print()
env
""",
    """
result = env.execute("square numbers")
result.get_net_runtime() > 0
""",
    """
env.from_collection(["<b>"]).map(len).name("<i>lengths</i>").print()
client = env.execute_async("lengths & more")
client.get_job_execution_result().result()
client
""",
    """
squares.to_dataframe("n long", "rows of squares").count()
""",
    """
import os, pathlib, signal, threading, time
mark = pathlib.Path("it_runs").absolute()

def stay(number):
    mark.touch()
    time.sleep(0.05)
    return number

def interrupt():
    while not mark.exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
env.from_collection(range(1_000_000)).map(stay).to_dataframe("n long", "endless").collect()
""",
    """
sorted(row.n for row in squares.to_dataframe("n long").collect())[:3]
""",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of each cell the data of all its outputs, the last of each kind."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook.cells[INTERRUPTED].metadata["tags"] = ["raises-exception"]
    run_notebook(notebook, folder)
    return [
        {
            kind: text
            for output in cell.outputs
            for kind, text in {
                **output.get("data", {}),
                "stream": output.get("text"),
                "error": output.get("ename"),
            }.items()
            if text
        }
        for cell in notebook.cells
    ]


def run_notebook(notebook: Any, folder: Path) -> None:
    settings = {
        "HEADGATE__SPARK__DRIVER__MEMORY": "1g",
        "HEADGATE__SPARK__UI__ENABLED": "false",
        "HEADGATE__SPARK__MASTER": "local[2]",
        "HEADGATE__REST__ENABLED": "true",
        "XDG_RUNTIME_DIR": str(folder),
    }
    client = nbclient.NotebookClient(
        notebook, timeout=100, resources={"metadata": {"path": folder}}
    )
    client.execute(env={**os.environ, **settings})


def test_streams_and_environments_are_pictures(outputs: list[dict[str, Any]]) -> None:
    stream, environment = outputs[0]["image/svg+xml"], outputs[1]["image/svg+xml"]
    assert "squares" in stream and "Print to Std. Out" not in stream
    assert "Print to Std. Out" in environment


def test_the_final_state_of_a_job_stays_below_its_cell(outputs: list[dict[str, Any]]) -> None:
    shown = outputs[2]["text/html"]
    assert "square numbers: finished after" in shown and "100 records" in shown
    assert "squares" in shown
    assert re.search(r'href="http://127\.0\.0\.1:\d+/#/jobs/\w+"', shown), "its page"


def test_a_job_that_was_started_shows_itself(outputs: list[dict[str, Any]]) -> None:
    shown = outputs[3]["text/html"]
    assert "lengths &amp; more" in shown and "finished" in shown
    assert "&lt;i&gt;lengths&lt;/i&gt;" in shown and "<i>" not in shown


def test_an_action_on_a_dataframe_is_shown_below_its_cell(outputs: list[dict[str, Any]]) -> None:
    shown = outputs[4]["text/html"]
    assert "rows of squares: finished after" in shown
    assert re.search(r'href="http://127\.0\.0\.1:\d+/#/jobs/[\w-]+"', shown), "its page"
    assert outputs[4]["text/plain"]


def test_an_interrupted_cell_ends_its_action_and_the_next_one_works(
    outputs: list[dict[str, Any]],
) -> None:
    """The job had both slots. PySpark may fail over the interrupt, which is its own affair."""
    assert outputs[INTERRUPTED]["error"] in ("KeyboardInterrupt", "Py4JNetworkError")
    assert "endless: canceled after" in outputs[INTERRUPTED]["text/html"]
    assert outputs[INTERRUPTED + 1]["text/plain"] == "[0, 1, 4]"
