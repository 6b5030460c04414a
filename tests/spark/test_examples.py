"""The examples say what they are meant to say."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

EXPECTED = {
    "word_count": """\
   7 the
   3 channel
   3 water
   2 a
   2 takes
""",
    "connected_streams": """\
bread    4.40 USD
jam      6.60 USD
rice     3.25 USD
tea      3.90 USD
""",
    "broadcast_rules": """\
payment 1: coffee
payment 4: coffee
payment 7: coffee
payment 10: coffee
payment 13: coffee
payment 16: coffee
payment 19: coffee
payment 19: large
payment 20: large
""",
    "custom_source_and_sink": """\
harbour: 24 measurements, 12.0 degrees at most
hill: 24 measurements, 9.0 degrees at most
""",
    "windows": """\
minute 0: harbour 12.5
minute 0: hill 8.0
minute 1: harbour 13.5
minute 1: hill 9.5
minute 3: hill 9.0
too late: ('harbour', 20, 30.0)
""",
    "state_and_timers": """\
minute 15: Ada has left
minute 20: Bert was logged out
minute 50: Bert was logged out
""",
    "joins": """\
interval: Ada paid bread after 3 minutes
interval: Ada paid jam after 14 minutes
interval: Bert paid tea after 4 minutes
window: Ada paid bread by card
""",
    "goes_on": """\
a worker was killed; restarts: 1
3000 balances: nothing lost, nothing twice
""",
    "model_calls": """\
 50 times +0 ! was rejected: a text has no words
100 times +1 a good day
 50 times +2 a great and good book
 50 times -1 a sad end
 50 times -1 bad weather
""",
    "async_lookup": "".join(
        f"{number:2} {'nobody knows' if number == 13 else f'capital {number}'}\n"
        for number in range(1, 21)
    ),
}
SIDE_OUTPUTS = [
    "broken> ''",
    "broken> 'what is this'",
    "count> ('/cart', 1)",
    "count> ('/index', 1)",
    "count> ('/index', 2)",
    "count> ('/search', 1)",
    "slow> /cart took 1800 ms",
    "slow> /search took 950 ms",
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", EXPECTED)
def test_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(name, monkeypatch)
    assert capsys.readouterr().out == EXPECTED[name]


@pytest.mark.usefixtures("spark")
def test_side_outputs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run("side_outputs", monkeypatch)  # three sinks print side by side
    assert sorted(capsys.readouterr().out.splitlines()) == SIDE_OUTPUTS


@pytest.mark.usefixtures("spark")
def test_word_count_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("one two two\n")
    run("word_count", monkeypatch, str(tmp_path))
    assert capsys.readouterr().out == "   2 two\n   1 one\n"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """As ``python examples/…`` would, in the session of the tests."""
    path = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    runpy.run_path(path, run_name="__main__")
