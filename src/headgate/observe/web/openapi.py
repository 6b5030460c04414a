"""The OpenAPI document of the API, made from the endpoints and the structs that they answer with.

Law: a path, a parameter or a field that the server has is in the document, with the bounds that the
server checks; the tests ask the server all that the document allows, and what it does not.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate import __version__
from headgate.observe.web.answers import Problems
from headgate.observe.web.endpoints import JSON, Endpoint
from headgate.observe.web.json_objects import json_type

PATH_PARAMETERS: Final = {
    "job": ("The id of a job.", "[^/]+"),
    "vertex": ("The number of a vertex, from 0.", "[0-9]{1,9}"),
    "subtask": ("The number of a subtask, from 0.", "[0-9]{1,9}"),
    "checkpoint": ("The number of a checkpoint.", "[0-9]{1,9}"),
    "request": ("The id of a request.", "[0-9a-f]+"),
}
REFUSALS: Final = {
    400: "A parameter or the body is not right.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another origin, or lacks a header.",
    404: "There is no such job, vertex, subtask, checkpoint, request, operator, state or key.",
    409: "That is not possible at the moment.",
    413: "The body is too long.",
    431: "The path and the headers are too long.",
    503: "The driver has too many such requests under way.",
}
_REF: Final = "#/components/schemas/{name}"


def openapi_document(endpoints: Sequence[Endpoint], *, needs_token: bool) -> dict[str, Any]:
    """As ``/openapi.json`` has it."""
    answers = [json_type(endpoint.answer) for endpoint in endpoints if endpoint.answer is not None]
    bodies = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    kinds = list(dict.fromkeys([json_type(Problems), *answers, *bodies]))
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, needs_token and endpoint.needs_token)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    components: dict[str, Any] = {"schemas": schemas}
    if needs_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": __version__,
            "description": "Jobs of one driver. Requests that change something need the header "
            "`X-Requested-With`, or a body of type `application/json`.",
        },
        "paths": paths,
        "components": components,
    }


def _operation(endpoint: Endpoint, needs_token: bool) -> dict[str, Any]:
    statuses = {400, 403, 431, *endpoint.statuses}
    if "{" in endpoint.path:
        statuses.add(404)
    if endpoint.method not in ("GET", "HEAD"):
        statuses.add(413)
    if needs_token:
        statuses.add(401)
    problems = {"schema": {"$ref": _REF.format(name=Problems.__name__)}}
    responses: dict[str, Any] = {
        str(status): {"description": REFUSALS[status], "content": {JSON: problems}}
        for status in sorted(statuses)
    }
    responses[str(endpoint.success)] = {
        "description": endpoint.summary,
        "content": {media: {"schema": _schema(endpoint)} for media in endpoint.media.split(" ")},
    }
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": responses,
    }
    if endpoint.body is not None:
        reference = {"$ref": _REF.format(name=endpoint.body.__name__)}
        operation["requestBody"] = {"content": {JSON: {"schema": reference}}}
    if needs_token:
        operation["security"] = [{"token": []}]
    return operation


def _schema(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        return {"type": "object"} if endpoint.media == JSON else {"type": "string"}
    reference = {"$ref": _REF.format(name=endpoint.answer.__name__)}
    return {"type": "array", "items": reference} if endpoint.is_list else reference


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS[name][0],
            "schema": {"type": "string", "pattern": f"^{PATH_PARAMETERS[name][1]}$"},
        }
        for name in names
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": "query",
            **({"required": True} if parameter.required else {}),
            "description": parameter.meaning,
            "schema": parameter.schema(),
        }
        for parameter in endpoint.parameters
    ]


def _operation_id(endpoint: Endpoint) -> str:
    parts = [part.strip("{}") for part in endpoint.path.split("/") if part]
    words = [endpoint.method.lower(), *parts]
    return "_".join(word.replace(".", "_") for word in words)
