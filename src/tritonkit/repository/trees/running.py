"""Run an ONNX file that is not on disk yet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tritonkit.repository.export.onnx_file import open_session, run_session

__all__ = ["run_file"]


def run_file(content: bytes, given: Callable[[Mapping[str, str]], dict[str, Any]]) -> dict[str, Any]:
    """The outputs by name.

    Args:
        given: makes the inputs from their names and ONNX Runtime's types.

    Raises:
        BuildError: ONNX Runtime cannot open or run it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "trees.onnx"
        file.write_bytes(content)
        session = open_session(file, "")
        inputs = given({tensor.name: tensor.type for tensor in session.get_inputs()})
        return dict(run_session(session, inputs, ""))
