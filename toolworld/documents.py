"""The world's documentation in two JSON forms, written from the catalog: OpenAPI 3 and ToolBench/RapidAPI.

The third form, Markdown, is in ``toolworld/markdown_pages.py``.

Neither form ever contains an API key or a record: only what the provider of a service would publish.
"""

from typing import Any

from autotools.encapsulate import python_name
from autotools.errors import ToolWorldError
from autotools.schema import ToolParameter
from toolworld.catalog import Domain, Operation, Resource

KEY_SCHEME = "apiKey"
KEY_HEADER = "X-Api-Key"
_ERRORS = {"401": "Unauthorized", "404": "NotFound", "422": "Invalid"}


def openapi_document(world: Any, base_url: str = "http://127.0.0.1:8000") -> dict[str, Any]:
    """One OpenAPI 3.0 document of the whole world (``world.tools()`` yields domain, resource, operation).

    ``operationId`` is the function name, ``tags`` the category, ``x-tool`` and ``x-api`` carry the names of which
    the ToolId is made. Raises ToolWorldError if two operations have the same operationId.
    """
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Error": _ERROR_SCHEMA}
    seen: dict[str, str] = {}
    for domain, resource, operation in world.tools():
        name = python_name(f"{resource.tool}_{operation.api}")
        if name in seen:
            raise ToolWorldError(f"catalog: {operation.path} and {seen[name]} are both called {name!r}; rename one")
        seen[name] = operation.path
        entry = _openapi_operation(name, domain, resource, operation, schemas)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
    return {
        "openapi": "3.0.3",
        "info": {"title": "Embedded tool world", "version": "1", "description": "Invented services on loopback."},
        "servers": [{"url": base_url}],
        "tags": [{"name": category} for category in dict.fromkeys(d.category for d, _, _ in world.tools())],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {name: _error_response(status, name) for status, name in _ERRORS.items()},
            "securitySchemes": {KEY_SCHEME: {"type": "apiKey", "in": "header", "name": KEY_HEADER}},
        },
    }


def _openapi_operation(
    name: str, domain: Domain, resource: Resource, operation: Operation, schemas: dict[str, Any]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": name,
        "tags": [domain.category],
        "summary": operation.description,
        "description": operation.description,
        "x-tool": {
            "tool": resource.tool,
            "display_name": resource.display_name,
            "description": resource.description,
        },
        "x-api": operation.api,
        "parameters": [_openapi_parameter(p) for p in operation.parameters if p.location != "body"],
    }
    if body := [p for p in operation.parameters if p.location == "body"]:
        schemas[f"{name}_body"] = {
            "type": "object",
            "properties": {p.name: _value_schema(p) | {"description": p.description} for p in body},
        }
        if required := [p.name for p in body if p.required]:
            schemas[f"{name}_body"]["required"] = required
        reference = {"$ref": f"#/components/schemas/{name}_body"}
        entry["requestBody"] = {"required": bool(required), "content": {"application/json": {"schema": reference}}}
    content = {"application/json": {"schema": template_schema(operation.response)}}
    entry["responses"] = {"200": {"description": "success", "content": content}}
    entry["responses"] |= {status: {"$ref": f"#/components/responses/{name}"} for status, name in _ERRORS.items()}
    if domain.api_key:
        entry["security"] = [{KEY_SCHEME: []}]
    else:
        del entry["responses"]["401"]
    return entry


def _openapi_parameter(parameter: ToolParameter) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": parameter.name, "in": parameter.location, "description": parameter.description}
    entry["required"] = parameter.required or parameter.location == "path"
    schema = _value_schema(parameter)
    if "example" in schema:
        entry["example"] = schema.pop("example")
    return entry | {"schema": schema}


def _value_schema(parameter: ToolParameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.type == "array":
        schema["items"] = {"type": "string"}
    if parameter.enum:
        schema["enum"] = list(parameter.enum)
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.example is not None:
        schema["example"] = parameter.example
    return schema


def template_schema(template: Any) -> dict[str, Any]:
    """JSON schema of a type template: ``{"price": "number"}`` -> object, ``[T]`` -> array of T, a name -> that type."""
    if isinstance(template, dict):
        schema: dict[str, Any] = {"type": "object", "properties": {k: template_schema(v) for k, v in template.items()}}
        return schema | ({"required": list(template)} if template else {})
    if isinstance(template, (list, tuple)):
        return {"type": "array", "items": template_schema(template[0]) if template else {}}
    return {"type": template} if template else {}


def rapidapi_documents(world: Any) -> dict[str, dict[str, Any]]:
    """One ToolBench tool file per resource: relative path ``Category/tool.json`` -> document.

    The form has no parameter locations: path variables stand in the URL, header and body parameters are also
    listed under ``headers`` and ``body``; everything else is a query parameter.
    """
    documents: dict[str, dict[str, Any]] = {}
    for domain, resource, operation in world.tools():
        path = f"{domain.category}/{resource.tool}.json"
        if path not in documents:
            documents[path] = _rapidapi_tool(resource)
        documents[path]["api_list"].append(_rapidapi_api(domain, documents[path]["host"], operation))
    return documents


def tool_host(resource: Resource) -> str:
    """Host name that the RapidAPI and Markdown forms give; ``.invalid`` never resolves (RFC 2606)."""
    return f"{resource.tool.replace('_', '-')}.tools.invalid"


def _rapidapi_tool(resource: Resource) -> dict[str, Any]:
    host = tool_host(resource)
    return {
        "product_id": f"api_{resource.tool}",
        "tool_description": resource.description,
        "home_url": f"https://{host}/",
        "name": resource.tool,
        "title": resource.display_name,
        "pricing": "FREE",
        "score": {"avgServiceLevel": 100, "avgLatency": 1, "avgSuccessRate": 100, "popularityScore": 1},
        "host": host,
        "api_list": [],
    }


def _rapidapi_api(domain: Domain, host: str, operation: Operation) -> dict[str, Any]:
    listed: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for p in operation.parameters:
        listed[p.required or p.location == "path"].append(_rapidapi_parameter(p))
    headers = {p.name: "" for p in operation.parameters if p.location == "header"}
    return {
        "name": operation.api,
        "url": f"https://{host}{operation.path}",
        "description": operation.description,
        "method": operation.method,
        "required_parameters": listed[True],
        "optional_parameters": listed[False],
        "code": "",
        "statuscode": 200,
        "body": {p.name: p.type for p in operation.parameters if p.location == "body"},
        "headers": headers | ({KEY_HEADER: ""} if domain.api_key else {}),
        "schema": operation.response,
    }


def _rapidapi_parameter(parameter: ToolParameter) -> dict[str, Any]:
    kind = "ENUM" if parameter.enum else {"integer": "INTEGER"}.get(parameter.type, parameter.type.upper())
    default = parameter.default if parameter.default is not None else ""
    entry = {"name": parameter.name, "type": kind, "description": parameter.description, "default": default}
    return entry | ({"enum": list(parameter.enum)} if parameter.enum else {})


_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _error_response(status: str, name: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": f"{status} {name}", "content": {"application/json": {"schema": schema}}}
