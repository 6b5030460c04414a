"""Schemathesis asks a real server what its OpenAPI document allows, and what it does not.

The stream of events is left out: it never ends, and has tests of its own.
"""

import json
from collections.abc import Iterator

import pytest

from tests.observe.web.kit import (
    Caller,
    ScriptedJob,
    a_failure,
    five_vertices,
    serving,
    some_checkpoints,
    some_lines,
)

pytest.importorskip("schemathesis", reason="it needs Python 3.11")

import msgspec
import schemathesis
from hypothesis import HealthCheck, settings

from headgate.observe.web.app import all_endpoints
from headgate.observe.web.openapi import openapi_document

KNOWN = {"job": "ab12", "vertex": "2", "subtask": "1", "checkpoint": "7"}
TOKEN = "t0ken"


@pytest.fixture(scope="module")
def server() -> Iterator[Caller]:
    job = ScriptedJob(
        five_vertices(), checkpoint_records=some_checkpoints(), lines=some_lines(), immortal=True
    )
    job.fail_once(a_failure())
    with serving(job, token=TOKEN) as ask:
        yield ask


def described() -> schemathesis.BaseSchema:
    endpoints = all_endpoints(needs_token=True, subtask_metrics=False)
    document = json.loads(msgspec.json.encode(openapi_document(endpoints, needs_token=True)))
    return schemathesis.openapi.from_dict(document).exclude(path="/jobs/{job}/events")


schema = described()


@schema.hook
def map_path_parameters(
    context: schemathesis.HookContext, path_parameters: dict[str, str] | None
) -> dict[str, str] | None:
    """Half of the time a job, a vertex or a checkpoint that there is."""
    if path_parameters and len(str(path_parameters.get("job", ""))) % 2:
        known = {name: KNOWN[name] for name in path_parameters if name in KNOWN}
        return {**path_parameters, **known}
    return path_parameters


@schema.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_server_keeps_to_its_document(case: schemathesis.Case, server: Caller) -> None:
    if case.query and "seconds" in case.query:
        case.query["seconds"] = 0.1  # waiting longer shows nothing more
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Requested-With": "schemathesis"}
    case.call_and_validate(base_url=server.server.url, headers=headers)


def test_the_document_has_every_path_and_what_it_refuses(server: Caller) -> None:
    found = server("/openapi.json", authorization=f"Bearer {TOKEN}").json
    assert found["openapi"] == "3.1.0"
    vertex = found["paths"]["/jobs/{job}/vertices/{vertex}"]["get"]
    assert vertex["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/VertexSubtasks"
    }
    assert {"400", "401", "403", "404"} < set(vertex["responses"])
    assert "async-calls" in found["components"]["schemas"]["SubtaskDetails"]["properties"]
    assert found["paths"]["/jobs/{job}/savepoints"]["post"]["security"] == [{"token": []}]
    assert "security" not in found["paths"]["/config"]["get"]
