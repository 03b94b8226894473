"""Specs that a build refuses, each with what its error says."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import (
    FILE,
    LINEAR,
    NONZERO,
    PYTHON,
    RELU,
    SAMPLES,
    TORCH,
    module,
    onnx_file,
    refused,
)
from tritonkit.errors import BuildError, SpecError, TritonkitError
from tritonkit.repository.export import BuildCache

Content = str | bytes | Callable[[], bytes]
"""A file's content; a function makes what needs PyTorch."""


@dataclass(frozen=True)
class Refusal:
    """A spec with its files, the kind of error that refuses it, and a part of each of the error's fields."""

    spec: str
    files: Mapping[str, Content]
    kind: type[TritonkitError] = BuildError
    error: Mapping[str, str] = field(default_factory=dict)


class Evil:
    """An object whose pickle runs code when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("ran",))


def safetensors(name: str) -> bytes:
    """A file of one tensor."""
    import torch
    from safetensors.torch import save

    return save({name: torch.ones(1)})


def saved(of: Callable[[], object]) -> bytes:
    """A file as torch.save writes it."""
    import torch

    file = io.BytesIO()
    torch.save(of(), file)
    return file.getvalue()


def ones() -> object:
    """A tensor."""
    import torch

    return torch.ones(3)


def torch_network(body: str, **error: str) -> Refusal:
    """A module whose forward has the given body."""
    return Refusal(TORCH, {"network__py": module(body)}, error=error)


def torch_weights(file: str, content: Content, **error: str) -> Refusal:
    """Weights that the linear network is to take."""
    spec = TORCH.replace("build\n", f"build\n  weights: {file}\n", 1)
    return Refusal(spec, {"network__py": LINEAR, file.replace(".", "__"): content}, error=error)


def onnx_inputs(inputs: str, message: str) -> Refusal:
    """A spec whose inputs are not those of its file."""
    spec = f"name: net\nnetwork: {{onnx: m.onnx, inputs: {inputs}}}\n"
    return Refusal(spec, {"m__onnx": onnx_file(RELU, ["batch", 4])}, SpecError, {"wanted": message})


def samples(code: str, message: str) -> Refusal:
    """Samples that do not fit the network's inputs."""
    files = {"network__py": LINEAR, "data__py": f"import numpy as np\ndef samples(): {code}\n"}
    return Refusal(SAMPLES, files, error={"where": "quality.samples", "found": message})


def metric(value: str) -> Refusal:
    """A metric that gives no finite number: NaN is below no bar, and must not pass the gate."""
    files = {
        "m__onnx": onnx_file(RELU, ["batch", 4]),
        "data__py": f"def score(outputs, reference): return {value}",
    }
    return Refusal(FILE + "quality: {metric: data:score, at_least: 0.9}\n", files, error={"wanted": "a finite number"})


WHOLE = onnx_file(RELU, ["batch", 4])
REFUSALS = {
    # Weights: nothing in a pickle runs, and names must fit.
    "weights with code": torch_weights("w.pt", pickle.dumps(Evil()), found="cannot be read"),
    "weights of other names": torch_weights("w.safetensors", lambda: safetensors("wrong"), details="unknown: wrong"),
    "weights: a tensor": torch_weights("w.pt", lambda: saved(ones), found="w.pt"),
    "weights: a list": torch_weights("w.pt", lambda: saved(lambda: [1, 2]), found="w.pt"),
    "weights: an empty file": torch_weights("w.pt", b"", found="w.pt"),
    # Modules: their own mistakes are named, not the exporter's words for them.
    "output shape by values": torch_network("return x[x > 0]", found="depends on the data"),
    "control flow on values": torch_network(
        "return x if x.sum() > 0 else -x",
        where="network.torch",
        found="control flow on values: `return x if x.sum() > 0 else -x` (network.py, line 4)",
        todo="torch.where",
    ),
    "NaN": torch_network("return x[:, :2] * float('nan')", found="gives NaN in 2 of 2"),
    "two outputs": torch_network("return x, x", found="1 names for 2 outputs"),
    "a nested output": torch_network("return x, [x]", found="1 names for 2 outputs"),
    "no tensors": torch_network(
        "return None, 1", found="no tensor; output 0 is None, and left out; output 1 is of the type int"
    ),
    "random answers": torch_network(
        "return (x + torch.randn_like(x))[:, :2]",
        found="the network answers the same input differently each time",
    ),
    "counted answers": torch_network(
        "self.n = getattr(self, 'n', 0) + 1; return x[:, :2] + self.n",
        found="the PyTorch module answers the same input differently each time",
    ),
    "a shape beyond memory": Refusal(
        TORCH.replace("[4]", "[2000000000]"), {"network__py": module("return x[:, :2]")}, error={"wanted": "at most"}
    ),
    # Hooks: the exception and its line, or a mistake in the spec.
    "a hook that fails": Refusal(
        TORCH,
        {"network__py": "def build():\n    raise RuntimeError('no such thing')\n"},
        error={"found": "RuntimeError: no such thing", "details": "network.py"},
    ),
    "a hook that is missing": Refusal(TORCH, {"network__py": "x = 1"}, SpecError, {"found": "no function 'build'"}),
    "samples: a name": samples("return [{'z': np.zeros((2, 4), 'f')}]", "has the names ['z']"),
    "samples: a dtype": samples("return [{'x': np.zeros((2, 4))}]", "float64 [2, 4] for x"),
    "samples: a shape": samples("return [{'x': np.zeros((2, 5), 'f')}]", "float32 [2, 5] for x"),
    "samples: a list": samples("return [{'x': [[1, 2, 3, 4]]}]", "a list for x"),
    "samples: no items": samples("return [{'x': np.zeros((0, 4), 'f')}]", "inputs of [0] items"),
    "samples: no names": samples("return [{}]", "has the names []"),
    "samples: a generator": samples("yield 1", "returned generator"),
    "metric NaN": metric("float('nan')"),
    "metric infinity": metric("float('inf')"),
    "metric None": metric("None"),
    # ONNX files.
    "half a file": Refusal(FILE, {"m__onnx": WHOLE[: len(WHOLE) // 2]}, error={"found": "not a whole ONNX file"}),
    "an input of another name": onnx_inputs("{z: {dtype: FP32, shape: [4]}}", "['x']"),
    "an input of another dtype": onnx_inputs("{x: {dtype: INT64, shape: [4]}}", "FP32, as m.onnx has it"),
    "an input of another shape": onnx_inputs("{x: {dtype: FP32, shape: [5]}}", "[4], as m.onnx has it"),
    "batches without a free axis": Refusal(
        FILE + "serving: {max_batch_size: 8}",
        {"m__onnx": onnx_file(RELU, [1, 4], [1, 4])},
        error={"todo": "max_batch_size: 0"},
    ),
    "batches of data-dependent outputs": Refusal(
        FILE + "serving: {max_batch_size: 8}",
        {"m__onnx": onnx_file(NONZERO, ["found", 2])},
        error={"found": "depends on the data"},
    ),
    # Python models: their files lie in one folder, and none may hide another, or the manifest.
    "a file of a kept name": Refusal(
        PYTHON.replace("s.py\n", "s.py\n  files: [manifest.json]\n"),
        {"s__py": "", "manifest__json": "{}"},
        SpecError,
        {"found": "manifest.json"},
    ),
    "a syntax error": Refusal(PYTHON, {"s__py": "def ("}, error={"found": "SyntaxError"}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_build_refuses(write_model: WriteModel, cache: BuildCache, name: str) -> None:
    """The error names the place, the fault or the remedy, and nothing is left behind."""
    refusal = REFUSALS[name]
    files = {file: content() if callable(content) else content for file, content in refusal.files.items()}
    error = refused(write_model(refusal.spec, **files), cache, refusal.kind)
    for part, text in refusal.error.items():
        assert text in getattr(error, part), part
