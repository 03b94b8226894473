"""The JSON schema of `model.yaml`, for editors; `docs/model.schema.json` holds it and a test compares."""

from __future__ import annotations

import json

from tritonkit.repository.modelspec.model import ModelFile

__all__ = ["schema_text"]


def schema_text() -> str:
    """The schema as JSON text, with `$schema` and a final line break."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | ModelFile.model_json_schema()
    return json.dumps(schema, indent=1) + "\n"
