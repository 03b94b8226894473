"""Networks in files, as people have them, made by the libraries that they come from."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tritonkit.repository.optimize.openvino_core import convert_module

__all__ = ["SCRIPT", "expected", "network", "program", "requests", "rewritten", "script", "write_graph"]

SCRIPT = """
name: net
network:
  file: model.pt
  inputs: {x: {dtype: FP32, shape: [4]}, kept: {dtype: INT64, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [3]}, total: {dtype: FP32, shape: []}}
"""
WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4) - 6


def network() -> Any:
    """A module of two inputs, [batch, 4] each, and two outputs."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3, bias=False)
            self.layer.weight.data = torch.from_numpy(WEIGHT.copy())

        def forward(self, x: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.relu(self.layer(x * kept))
            return y, y.sum(1)

    return Net().eval()


def expected(x: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same in numpy."""
    y = np.maximum(x * kept @ WEIGHT.T, 0)
    return y, y.sum(1)


def script(module: Any = None) -> bytes:
    """A module as torch.jit.script and torch.jit.save write it."""
    import torch

    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and what people have
        torch.jit.save(torch.jit.script(module or network()), content)
    return content.getvalue()


def program(module: Any = None, inputs: tuple[Any, ...] = (), **axes: Any) -> bytes:
    """A module as torch.export writes it, with a free first axis unless `axes` are given."""
    import torch

    given = inputs or (torch.ones(2, 4), torch.ones(2, 4, dtype=torch.int64))
    free = axes or {"dynamic_shapes": [{0: torch.export.Dim("batch")} for _ in given]}
    content = io.BytesIO()
    torch.export.save(torch.export.export(module or network(), given, **free), content)
    return content.getvalue()


def write_graph(folder: Path, name: str, shapes: dict[str, list[int]]) -> None:
    """The module as OpenVINO's model.xml and model.bin, with these shapes of its inputs."""
    import openvino
    import torch

    example = {"x": torch.ones(2, 4), "kept": torch.ones(2, 4, dtype=torch.int64)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer
        converted = convert_module(network(), example)
    for node, name_of in zip((*converted.inputs, *converted.outputs), ("x", "kept", "y", "total"), strict=True):
        node.get_tensor().set_names({name_of})
    converted.reshape(shapes)
    openvino.save_model(converted, folder / name, compress_to_fp16=False)


def rewritten(content: bytes, name: str, change: Callable[[Any], None]) -> bytes:
    """An archive in which the JSON file that ends with `name` is changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(made, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith(name):
                facts = json.loads(data)
                change(facts)
                data = json.dumps(facts).encode()
            target.writestr(info.filename, data)
    return made.getvalue()


def requests(random: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Requests of one to three items."""
    return [
        {
            "x": random.standard_normal((rows, 4), np.float32),
            "kept": random.integers(0, 2, (rows, 4)),
        }
        for rows in (1, 2, 3) * 32
    ]
