"""The adapters of steps outside Triton: their model.py with a stand-in for Triton's module."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STEPS = Path(__file__).parents[2] / "python_backends" / "steps"


class Tensor:
    """A tensor of a request or of an answer."""

    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        """Its name."""
        return self._name

    def as_numpy(self) -> Any:
        """Its values."""
        return self._array


class Request:
    """A request as Triton hands it to a model."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self._tensors = [Tensor(name, array) for name, array in arrays.items()]

    def inputs(self) -> list[Tensor]:
        """The inputs."""
        return self._tensors


def adapter(step: str, monkeypatch: pytest.MonkeyPatch, max_batch_size: int = 8, **parameters: str) -> Any:
    """A step's model with these parameters; it answers with its first output, or an error with text and kind."""
    names = {"INVALID_ARG": "invalid", "INTERNAL": "internal", "UNAVAILABLE": "unavailable"}
    triton = types.ModuleType("triton_python_backend_utils")
    triton.TritonModelException = RuntimeError  # type: ignore[attr-defined]
    triton.TritonError = type(  # type: ignore[attr-defined]
        "TritonError", (), {**names, "__init__": lambda self, text, kind: vars(self).update(text=text, kind=kind)}
    )
    triton.Tensor = Tensor  # type: ignore[attr-defined]
    triton.InferenceResponse = (  # type: ignore[attr-defined]
        lambda output_tensors, error=None: error or output_tensors[0].as_numpy()
    )
    monkeypatch.setitem(sys.modules, triton.__name__, triton)
    spec = importlib.util.spec_from_file_location(f"{step}_model", STEPS / step / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    config = {
        "max_batch_size": max_batch_size,
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    model.initialize(
        {"model_config": json.dumps(config), "model_name": "m", "model_repository": "", "model_version": "1"}
    )
    return model


def images(*files: bytes) -> np.ndarray:
    """An input of encoded images."""
    column = np.empty((len(files), 1), dtype=object)
    column[:, 0] = files
    return column
