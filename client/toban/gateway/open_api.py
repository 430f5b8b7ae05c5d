"""The OpenAPI 3.1 document: made from the operations, the contract in `proto/`, and the rule of docs/json.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from toban import __version__
from toban.gateway.caller_credential import CSRF_HEADER
from toban.gateway.operation import Operation, role_of
from toban.gateway.operation_request import IDEMPOTENCY_KEY
from toban.gateway.problem_details import MEDIA_TYPE
from toban.gateway.problem_details import SCHEMA as PROBLEM_SCHEMA
from toban.message_json.message_data import is_map
from toban.message_json.message_schema import object_of, schema_of_field, schemas_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

PREFIX: Final = "#/components/schemas/"
_JSON: Final = "application/json"
_COMMON: Final = (400, 401, 403, 404, 422, 429, 500, 503)
_CHANGING: Final = (409, 413, 415, 507)

Document = dict[str, Any]


def document(operations: Iterable[Operation], further: Mapping[str, Document]) -> Document:
    """`further` has the paths that are not one call each."""
    paths: dict[str, Document] = {}
    for each in operations:
        paths.setdefault(f"/api{each.path}", {})[each.method.lower()] = _operation(each)
    for path, methods in further.items():
        paths.setdefault(path, {}).update(methods)
    schemas = {**schemas_of([paths, PROBLEM_SCHEMA], PREFIX, apart=("Problem",)), "Problem": PROBLEM_SCHEMA}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toban",
            "version": __version__,
            "description": "The API of the daemon over HTTP: the messages of `toban.v1` by the rule of docs/json.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "toban",
                    "description": f"A session; its name ends with the port. Changes also need {CSRF_HEADER}.",
                },
            },
        },
    }


def refusals(statuses: Iterable[int]) -> Document:
    """The responses of these statuses."""
    schema = {"schema": {"$ref": f"{PREFIX}Problem"}}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        for status in sorted(statuses)
    }


def described(
    *,
    id: str,  # noqa: A002 - the word of the document
    tag: str,
    summary: str,
    responses: Document,
    parameters: Iterable[Document] = (),
    body: Document | None = None,
    role: str = "",
    public: bool = False,
    statuses: Iterable[int] = _COMMON,
) -> Document:
    """One operation of the document."""
    made: Document = {"operationId": id, "tags": [tag], "summary": summary}
    if role:
        made["description"] = f"Needs the role {role}."
    if public:
        made["security"] = []
    if given := list(parameters):
        made["parameters"] = given
    if body is not None:
        made["requestBody"] = body
    made["responses"] = {**responses, **refusals(statuses)}
    return made


def parameter(
    place: str, name: str, schema: Document, *, required: bool = False, description: str = "", explode: bool = True
) -> Document:
    made: Document = {"name": name, "in": place, "required": required or place == "path", "schema": schema}
    if description:
        made["description"] = description
    if schema.get("type") == "array":
        made |= {"style": "form", "explode": explode}
    return made


def json_response(schema: Document, description: str, *, headers: Document | None = None) -> Document:
    made: Document = {"description": description, "content": {_JSON: {"schema": schema}}}
    return {**made, "headers": headers} if headers else made


def _operation(operation: Operation) -> Document:
    return described(
        id=operation.id,
        tag=operation.tag,
        summary=operation.summary,
        role=role_of(operation.rpc),
        parameters=_parameters(operation),
        body=_body(operation) if operation.in_body and operation.given else None,
        responses=_responses(operation),
        statuses=_statuses(operation),
    )


def _statuses(operation: Operation) -> list[int]:
    changing = _CHANGING if operation.method != "GET" else ()
    expiring = (410,) if operation.rpc == "RunService/ReadLog" else ()
    return [*_COMMON, *changing, *expiring, *((412,) if operation.if_match else ())]


def _parameters(operation: Operation) -> list[Document]:
    found = []
    for name in operation.placeholders:
        field = operation.field_at(operation.names.get(name, name))
        found.append(parameter("path", name, _path_schema(field)))
    if not operation.in_body:
        for name, path in operation.given.items():
            found.append(_query_parameter(name, operation.field_at(path), required=name in operation.needed))
    if operation.idempotent_by_key:
        text = "A repeat of the request with the same key gets the first answer again."
        found.append(parameter("header", IDEMPOTENCY_KEY, {"type": "string", "maxLength": 128}, description=text))
    if operation.if_match:
        text = "The value of `ETag`: 412 if it has changed since."
        found.append(parameter("header", "If-Match", {"type": "string"}, description=text))
    if operation.method == "GET":
        found.append(parameter("header", "If-None-Match", {"type": "string"}, description="304 if it is the same."))
    return found


def _path_schema(field: FieldDescriptor) -> Document:
    schema = schema_of_field(field, PREFIX)
    return {**schema, "minLength": 1} if schema.get("type") == "string" else schema


def _query_parameter(name: str, field: FieldDescriptor, *, required: bool) -> Document:
    if is_map(field):
        pair = {"type": "array", "items": {"type": "string", "pattern": "="}}
        return parameter("query", name, pair, required=required, description="`KEY=VALUE`; may be repeated.")
    return parameter("query", name, _without_null(schema_of_field(field, PREFIX)), required=required)


def _without_null(schema: Document) -> Document:
    """A word of a query cannot be null."""
    if "enum" in schema:
        return {"type": "string", "enum": [word for word in schema["enum"] if word is not None]}
    return {**schema, "items": _without_null(schema["items"])} if "items" in schema else schema


def _body(operation: Operation) -> Document:
    fields = {name: input_schema(operation.field_at(path)) for name, path in operation.given.items()}
    schema = object_of(fields, optional=tuple(set(fields) - set(operation.needed)))
    content: Document = {_JSON: {"schema": {**schema, "additionalProperties": False}}}
    if operation.source:
        content["application/yaml"] = {"schema": {"type": "string"}}
    return {"required": bool(operation.needed), "content": content}


def input_schema(field: FieldDescriptor) -> Document:
    """As in answers, but nothing inside of it is required."""
    kind = field.message_type
    if kind is None or kind.file.package != "toban.v1" or is_map(field):
        return schema_of_field(field, PREFIX)
    inner: Document = object_of({each.name: input_schema(each) for each in kind.fields})
    inner = {**inner, "required": [], "additionalProperties": False}
    return {"type": "array", "items": inner} if field.is_repeated else inner


def _responses(operation: Operation) -> Document:
    if operation.status == 204:
        return {"204": {"description": "Done."}}
    headers = {"ETag": {"schema": {"type": "string"}}}
    made = {str(operation.status): json_response(_result(operation), "The answer.", headers=headers)}
    if operation.method == "GET":
        made["304"] = {"description": "It is the same as the one that `If-None-Match` names."}
    return made


def _result(operation: Operation) -> Document:
    kind = operation.answer
    if not operation.result:
        return {"$ref": f"{PREFIX}{kind.name}"}
    result = kind.fields_by_name[operation.result].message_type
    assert result is not None
    whole = {"$ref": f"{PREFIX}{result.name}"}
    others = [each for each in kind.fields if each.name != operation.result]
    if not others:
        return whole
    assert not {each.name for each in others} & set(result.fields_by_name)
    beside = {each.name: schema_of_field(each, PREFIX) for each in others}
    return {"allOf": [whole, object_of(beside, optional=tuple(each.name for each in others if each.has_presence))]}
