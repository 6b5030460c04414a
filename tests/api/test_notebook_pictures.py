"""What notebooks show of environments, streams and jobs at the end of a cell."""

from xml.etree import ElementTree

from headgate.api.datastream import DataStream
from headgate.datastream import StreamExecutionEnvironment
from headgate.plan.drawing import MARK
from tests.api.kit import ListSource

SVG = "{http://www.w3.org/2000/svg}"


def drawn(shown: DataStream | StreamExecutionEnvironment) -> tuple[str, list[str]]:
    """All words of its picture, and the operators that are marked in it."""
    svg = shown._repr_svg_()
    assert svg is not None
    picture = ElementTree.fromstring(svg)
    bold = [text for text in picture.iter(f"{SVG}text") if text.get("font-weight") == "700"]
    assert svg.count(MARK) == len(bold)
    return " ".join(picture.itertext()), [text[0].text or "" for text in bold]


def test_a_stream_shows_the_plan_that_leads_to_it(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["a"]).map(str).name("<words>")
    counts = words.key_by(str).map(len).name("counts")
    other = env.from_collection([1]).name("other")
    text, marked = drawn(words)
    assert marked == ["<words>"]
    assert "counts" not in text, "only what leads to the stream"
    assert drawn(counts)[1] == ["counts"] and "HASH" in drawn(counts)[0]
    assert drawn(counts.union(other))[1] == ["counts", "other"]
    assert drawn(words.key_by(str))[1] == ["<words>"]


def test_an_environment_shows_all_that_was_written(env: StreamExecutionEnvironment) -> None:
    assert env._repr_svg_() is None, "nothing was written: its usual text is shown"
    env.from_collection(["a"]).map(str).name("words").print()
    text, marked = drawn(env)
    assert "words" in text and "Print to Std. Out" in text and marked == []
    env.execute()
    assert env._repr_svg_() is None


def test_a_picture_asks_no_source_for_its_splits(env: StreamExecutionEnvironment) -> None:
    class Remote(ListSource):
        def splits(self, parallelism: int) -> list[object]:
            raise AssertionError("a picture needs no connection")

    assert "remote" in drawn(env.from_source(Remote([1]), None, "remote"))[0]


def test_a_program_that_is_wrong_so_far_has_no_picture(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    stream = env.from_collection([1]).map(str).uid("same").map(str).uid("same")
    assert stream._repr_svg_() is None


def test_a_job_shows_what_its_runtime_says_of_it(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).print()
    assert env.execute_async()._repr_html_() == "<b>job-1</b>"
