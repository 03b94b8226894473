"""The kinds of ready-made files, told apart by their content, and files that are served in another way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import SpecError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.files import resolve_network_file
from tritonkit.repository.optimize.files.ready import Place
from tritonkit.repository.optimize.files.torch_archive import Archive, pickled

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["kind_of", "place_of", "write_file"]

_BACKENDS: Mapping[str, str] = {
    "openvino": "openvino",
    "tensorrt": "tensorrt",
    "torch-export": "python",
    "torchscript": "pytorch",
}
"""Kind of file -> the backend that serves it."""
_HEAD = 4096
_GRAPH = re.compile(rb"\A(\xef\xbb\xbf)?\s*(<\?xml[^>]*>)?\s*(<!--.*?-->\s*)*<net\b", re.DOTALL)
_PLANS = (".engine", ".plan", ".trt")
_TORCH = "network: {torch: network:build, weights: FILE}, with a network.py that makes the module"
_PICKLE = (
    "a pickle",
    "tritonkit new NAME --tree FILE names the files for trees and scikit-learn; for weights of PyTorch " + _TORCH,
)
_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    ".bin": ("weights", "name the .xml of an OpenVINO network; " + _TORCH),
    ".cbm": ("a model of CatBoost", "tritonkit new NAME --tree FILE"),
    ".ckpt": ("a checkpoint of PyTorch", _TORCH),
    ".gguf": ("a language model for llama.cpp", "tritonkit new NAME --llm FOLDER, with its safetensors"),
    ".h5": (
        "a network of Keras as HDF5",
        "save it as FILE.keras with Keras 3, then tritonkit new NAME --keras FILE.keras",
    ),
    ".joblib": _PICKLE,
    ".json": ("JSON", "tritonkit new NAME --tree FILE for trees of XGBoost"),
    ".keras": ("a network of Keras", "tritonkit new NAME --keras FILE"),
    ".onnx": ("an ONNX file", "network: {onnx: FILE}, which has variants and a quality gate"),
    ".ort": ("a network of ONNX Runtime's mobile form", "network: {onnx: FILE}, with the file that it was made from"),
    ".pickle": _PICKLE,
    ".pkl": _PICKLE,
    ".pb": ("a graph of TensorFlow", "python -m tf2onnx.convert, then network: {onnx: FILE}"),
    ".py": ("Python", "network: {python: FILE} for a model of the python backend"),
    ".safetensors": ("weights", _TORCH),
    ".skops": ("a pipeline of scikit-learn", "tritonkit new NAME --tree FILE"),
    ".tflite": ("a network for edge devices", "network: {onnx: FILE}, with the network that it was made from"),
    ".txt": ("text", "tritonkit new NAME --tree FILE for trees of LightGBM"),
    ".ubj": ("a model of XGBoost", "tritonkit new NAME --tree FILE"),
}
"""Ending of a file that is not a ready-made network -> its kind, and the way to serve it."""


def write_file(job: Job, folder: Path) -> tuple[str, ...]:
    """Copy the file of a spec as a version needs it."""
    return job.ready.write(folder)


def kind_of(spec: Spec) -> str:
    """The kind of a spec's `network.file`, by its content.

    Raises:
        SpecError: no backend serves such a file, or not the one that the spec names; the message names the way.
    """
    place, backend = place_of(spec), spec.model.network.backend
    kind = _kind(place, plans=backend == "tensorrt")
    if backend not in (None, _BACKENDS[kind]):
        raise SpecError(
            f"{spec.file} network.backend",
            found=f"{backend}, and {place.name} is a file of {kind}",
            wanted=f"{_BACKENDS[kind]}, or no backend: the file tells",
            todo="remove it",
        )
    return kind


def place_of(spec: Spec) -> Place:
    """The file of a spec's `network.file`."""
    return Place(spec, resolve_network_file(spec))


def _kind(place: Place, *, plans: bool) -> str:
    with place.path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head:
        raise _refused(place, "an empty file", "copy it again")
    ending = place.path.suffix.lower()
    if head.startswith(b"PK\x03\x04"):
        return _archive(place)
    if _GRAPH.match(head):
        return "openvino"
    if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        raise _refused(place, _pickle(place.path), _ELSEWHERE.get(ending, ("", _TORCH))[1])
    if ending in _PLANS or plans:
        return "tensorrt"
    what, way = _ELSEWHERE.get(ending, ("a file of no kind that is known here", _ways()))
    raise _refused(place, what, way)


def _archive(place: Place) -> str:
    archive = Archive(place)
    if "model.weights.h5" in archive.names:
        raise _refused(place, *_ELSEWHERE[".keras"])
    if archive.has("models/") or archive.has("data/aotinductor/"):
        return "torch-export"
    if "serialized_exported_program.json" in archive.names:
        raise _refused(
            place,
            "a program of torch.export in the form of PyTorch 2.7 and older, whose weights are a pickle",
            "torch.export.load(FILE) and torch.export.save(program, NEW_FILE) with PyTorch 2.8 or newer",
        )
    if "constants.pkl" in archive.names and archive.has("code/"):
        return "torchscript"
    if "data.pkl" in archive.names:
        raise _refused(place, pickled(archive.read("data.pkl")).words, _TORCH)
    unknown = ("a ZIP archive of no kind that is known here", _ways())
    raise _refused(place, *_ELSEWHERE.get(place.path.suffix.lower(), unknown))


def _pickle(path: Path) -> str:
    try:
        return pickled(path.read_bytes()).words
    except MemoryError:
        return "a pickle, which runs code where it is read"


def _ways() -> str:
    return "name a TorchScript file, a .pt2 of torch.export, an OpenVINO .xml, or a .plan with backend: tensorrt"


def _refused(place: Place, what: str, way: str) -> SpecError:
    return SpecError(
        place.where,
        found=f"{place.name} is {what}",
        wanted="a network that a backend opens as it is: " + ", ".join(_BACKENDS),
        todo=way.replace("FILE", place.name),
    )
