"""The documents become a site without a dead link, which loads nothing from elsewhere."""

import json
import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("material")
pytest.importorskip("mkdocstrings_handlers.python")

ROOT = Path(__file__).parent.parent.parent
MAKE = runpy.run_path(str(ROOT / "docs/make_site.py"))
LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="?((?:https?:)?//[^" >]+)')


@pytest.mark.timeout(300)
def test_the_site_has_every_page_and_name_and_loads_nothing_from_elsewhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert MAKE["make_site"](tmp_path) == 0, capfd.readouterr().err
    site = tmp_path / "site"
    loaded = [LOADED.findall(page.read_text("utf-8")) for page in site.rglob("*.html")]
    assert [url for urls in loaded for url in urls] == []
    found = json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    places = {entry["location"] for entry in found}
    assert {"recipes/sessions/", "design/0001-sans-io-core-and-two-drivers/"} <= places
    reference = "api/sources-and-sinks/#headgate.connectors.kafka.source.KafkaSource"
    assert {reference, "api/streams/#headgate.api.keyed.KeyedStream.reduce"} <= places


@pytest.mark.timeout(300)
def test_dead_links_are_noticed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dead = ("missing.md", "other.md#nowhere", "#here")
    (tmp_path / "pages").mkdir()
    home = "\n".join(f"[there]({link})" for link in dead)
    (tmp_path / "pages/index.md").write_text(f"# Home\n\n{home}\n", encoding="utf-8")
    (tmp_path / "pages/other.md").write_text("# Other\n", encoding="utf-8")
    assert MAKE["run_mkdocs"](tmp_path, [{"Home": "index.md"}, {"Other": "other.md"}]) == 1
    said = capfd.readouterr().err
    assert [link for link in dead if link not in said] == []


def test_links_lead_to_where_pages_are_in_the_site() -> None:
    links = "[a](../README.md) [b](guide.md#errors) [c](../src/x.py)\n```\n[d](../README.md)\n```\n"
    moved = MAKE["with_links_of_the_site"](links, "docs/README.md")
    assert moved == "[a](index.md) [b](guide.md#errors) c\n```\n[d](../README.md)\n```\n"
