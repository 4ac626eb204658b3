"""A schema registry in small: answers for schemas by id and GUID, and for a subject's versions, over HTTP."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any
from uuid import UUID

from tests.serving import Answering, Serving

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
LOGIN = "reader:a-secret-word"
ITEM = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]}


def _order(item: object) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "order_id", "type": ["null", "string"]},
            {"name": "number", "type": "long"},
            {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "seconds", "type": "long"},
            {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
            {"name": "items", "type": {"type": "array", "items": item}},
            {"name": "labels", "type": {"type": "map", "values": "string"}},
        ],
    }


ORDER, WHOLE = _order("shop.Item"), _order(ITEM)
"""The schema that refers to that of items, and the same with it inside."""
AT_US = 1_700_000_000_123_456
FIELDS: dict[str, Any] = {
    "order_id": "o-17",
    "number": 17,
    "key": str(GUID),
    "at": AT_US,
    "seconds": 1_700_000_000,
    "raw": b"\xff\x00",
    "items": [{"sku": "s"}],
    "labels": {"trace.id": "t-1"},
}
OF_ITEMS = [{"name": "shop.Item", "subject": "items", "version": 1}]
ANSWERS: dict[str, Any] = {
    "/schemas/ids/7": {"schema": json.dumps(ORDER), "references": OF_ITEMS},
    f"/schemas/guids/{GUID}": {"schema": json.dumps(ORDER), "references": OF_ITEMS, "id": 7},
    "/subjects/items/versions/1": {"subject": "items", "version": 1, "id": 3, "schema": json.dumps(ITEM)},
    "/schemas/ids/8": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/9": {"schema": '{"type": "recorb"}'},
}


class SchemaRegistry(Serving):
    """While the ``with`` block lasts, it answers at ``url``. ``asked`` are the paths, in order."""

    def __init__(self, *, login: str | None = None, status: int = 200) -> None:
        self.asked: list[str] = []
        registry = self

        class Handler(Answering):
            def do_GET(self) -> None:
                path = re.sub(r"\?.*", "", self.path)
                registry.asked.append(path)
                code, answer = status, ANSWERS.get(path, {"error_code": 40403, "message": "Schema not found"})
                if login is not None and self.headers["Authorization"] != f"Basic {_basic(login)}":
                    code, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                elif path not in ANSWERS:
                    code = 404
                body = b"<html>" if status == 404 else json.dumps(answer).encode()
                self.answer(code, body)

        super().__init__(Handler)
        self.url = self.address


def _basic(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def in_avro(**changes: object) -> bytes:
    """The bytes of an order, without a frame."""
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(WHOLE), FIELDS | changes)
    return stream.getvalue()


def framed(schema: int, content: bytes) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + content
