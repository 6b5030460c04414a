"""The drawing of a job graph: XML that stands alone and names everything."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from headgate.plan import ship_strategies as ships
from headgate.plan.drawing import MARK, columns_and_rows, draw_svg
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import StreamGraph
from tests.plan.programs import Program, key_of, programs, reads

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]


@given(programs())
def test_every_operator_and_every_edge_is_named(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    svg = draw_svg(job)
    found = texts(svg)
    assert svg == draw_svg(build_job_graph(graph))
    assert {node.name for node in graph.nodes.values()} <= set(found)
    ships_found = [text.split(" · ")[0] for text in found if text.split(" · ")[0].isupper()]
    assert sorted(ships_found) == sorted(edge.ship for edge in job.edges)
    for vertex in job.vertices:
        assert f"×{vertex.parallelism}" in found  # noqa: RUF001 - the sign is meant


@given(name=st.text(min_size=1), group=st.text(min_size=1), tag=st.text())
def test_any_name_can_be_drawn(name: str, group: str, tag: str) -> None:
    program = Program(name)
    source = program.source(name, group=group)
    program.sink(name, reads(source, tag=tag, selected=frozenset({name})), parallelism=1)
    ElementTree.fromstring(draw_svg(build_job_graph(program.graph)))


def test_markup_in_a_name_stays_text() -> None:
    name = '</text><script>alert("&")</script>'
    program = Program(name)
    program.source(name)
    svg = draw_svg(build_job_graph(program.graph))
    assert "<script" not in svg
    assert name in texts(svg)


def test_a_long_name_is_cut_but_kept_as_a_hint() -> None:
    program = Program()
    program.source("long " * 20)
    found = texts(draw_svg(build_job_graph(program.graph)))
    assert "long " * 20 in found
    assert ("long " * 8)[:39] + "…" in found


def test_a_drawing_needs_nothing_from_outside() -> None:
    program = Program()
    program.sink("print", reads(program.source(), ships.hash_by(key_of)))
    svg = draw_svg(build_job_graph(program.graph))
    assert svg.count("http") == 1  # the name space
    assert not any(word in svg for word in ("href", "url(", "@import", "<style", "<image"))


def test_labels_tell_input_side_output_and_selection() -> None:
    program = Program(batch=True)
    source = program.source()
    edge = reads(source, ships.rebalance(), 1, tag="late", selected=frozenset({"b", "a"}))
    program.sink("sink", edge)
    svg = draw_svg(build_job_graph(program.graph))
    assert "REBALANCE · input 2 · late · a, b" in texts(svg)
    paths = ElementTree.fromstring(svg).iter(f"{SVG}path")
    assert sum("stroke-dasharray" in path.attrib for path in paths) == 1  # it is blocking


def test_a_marked_operator_is_pointed_out() -> None:
    program = Program("x")
    source = program.source("numbers")
    program.sink("end", reads(source), parallelism=1)
    graph = build_job_graph(program.graph)
    assert MARK not in draw_svg(graph)
    picture = ElementTree.fromstring(draw_svg(graph, [source]))
    assert sum(box.attrib.get("fill") == MARK for box in picture.iter(f"{SVG}rect")) == 1
    (bold,) = [text for text in picture.iter(f"{SVG}text") if text.get("font-weight") == "700"]
    assert "numbers" in "".join(bold.itertext())


@given(programs())
def test_every_vertex_has_a_place_of_its_own_right_of_what_it_reads(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    places = columns_and_rows(job)
    assert len(set(places)) == len(places) == len(job.vertices)
    for edge in job.edges:
        assert places[edge.source][0] < places[edge.target][0]
    for column in {column for column, _ in places}:
        rows = sorted(row for place, row in places if place == column)
        assert rows == list(range(len(rows)))
