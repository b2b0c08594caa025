"""The JSON schema of all documents: `python -m deepprof.web.schema_file` writes `web/view.schema.json`.

The page's types are made from it. All fields are written, so all are required.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

import deepprof.web.documents

FILE = Path(__file__).resolve().parents[2] / "web" / "view.schema.json"


def document_types() -> list[type[msgspec.Struct]]:
    """Return the documents of all modules in `documents`, by name."""
    names = [module.name for module in pkgutil.iter_modules(deepprof.web.documents.__path__)]
    modules = [importlib.import_module(f"deepprof.web.documents.{name}") for name in names]
    structs = {value for module in modules for value in vars(module).values() if _is_document(value)}
    return sorted(structs, key=lambda struct: struct.__name__)


def schema_text() -> str:
    """Return the schema as it is in the file."""
    references, components = msgspec.json.schema_components(document_types(), ref_template="#/$defs/{name}")
    definitions = {name: _with_all_fields(schema) for name, schema in sorted(components.items())}
    schema = {"title": "Document", "anyOf": list(references), "$defs": definitions}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _is_document(value: Any) -> bool:
    """Return whether `value` is the type of a document: a view's, or the session's."""
    return isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__name__.endswith("Document")


def _with_all_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct with all its fields required, and tuples as the generator of types reads them."""
    complete = schema | {"description": cleandoc(schema["description"]), "required": [*schema.get("properties", ())]}
    return {key: _old_tuples(value) for key, value in complete.items()} | {"additionalProperties": False}


def _old_tuples(schema: Any) -> Any:
    """Return `schema` with `prefixItems` written as a list of `items`."""
    if isinstance(schema, list):
        return [_old_tuples(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: _old_tuples(value) for key, value in schema.items()}
    if "prefixItems" in known:
        known["items"] = known.pop("prefixItems")
    return known


if __name__ == "__main__":
    FILE.write_text(schema_text(), encoding="utf-8")
