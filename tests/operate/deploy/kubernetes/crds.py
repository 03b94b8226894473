"""Schemas of custom resources: ours of what is used, and those of CustomResourceDefinitions where a folder has them.

TRITONKIT_CRDS names a folder of files in YAML as `kubectl get crd NAME --output yaml` writes them, or as their projects
publish them.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

__all__ = ["CRDS", "definitions_of_crds", "errors_of", "our_schema"]

Schema = dict[str, Any]
CRDS = os.environ.get("TRITONKIT_CRDS", "")
_OURS = Path(__file__).with_name("custom_resources.yaml")


def errors_of(resource: Schema, schema: Schema) -> list[str]:
    """Places in which a resource violates the schema."""
    errors = Draft202012Validator(schema).iter_errors(resource)
    return [f"{error.json_path}: {error.message}" for error in errors]


@cache
def our_schema(kind: str) -> Schema:
    """Ours of a kind; KeyError where there is none."""
    schemas = yaml.safe_load(_OURS.read_text())
    spec = {"type": "object", **schemas[kind]}
    fixed = {"apiVersion": {"const": spec.pop("apiVersion")}, "kind": {"const": kind}}
    whole = {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {**fixed, "metadata": {"type": "object", "open": True}, "spec": spec},
    }
    return {**_closed(whole), "definitions": _closed(schemas["definitions"])}


@cache
def definitions_of_crds() -> dict[tuple[str, str], Schema]:
    """(apiVersion, kind) -> schema, of the folder that TRITONKIT_CRDS names."""
    definitions = {}
    for file in sorted(Path(CRDS).glob("*.y*ml")):
        for document in yaml.safe_load_all(file.read_text()):
            for definition in (document or {}).get("items", [document]):
                if not definition or definition.get("kind") != "CustomResourceDefinition":
                    continue
                spec = definition["spec"]
                for version in spec["versions"]:
                    key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                    definitions[key] = _structural(version["schema"]["openAPIV3Schema"])
    return definitions


def _structural(schema: Schema) -> Schema:
    """A CRD's schema, whose unknown fields an API server would drop without a word, as one that refuses them."""
    properties = schema.get("properties", {})
    # Of every resource; a CRD need not say them.
    whole = {**properties, "metadata": {"type": "object", "open": True}}
    return _closed({**schema, "properties": whole})


def _closed(schema: Any) -> Any:
    """Every object with properties has no others; what only API servers understand is left out."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    is_open = schema.get("open") or schema.get("x-kubernetes-preserve-unknown-fields")
    made = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: _closed(part) for name, part in value.items()}
        elif key in ("required", "enum", "default", "const"):
            made[key] = value
        elif key != "open" and not key.startswith("x-kubernetes-"):
            made[key] = _closed(value)
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        made["type"] = [schema["type"], "null"]
    if "properties" in schema and "additionalProperties" not in schema and not is_open:
        made["additionalProperties"] = False
    return made
