"""Load each model once before it is published, as the server will, and answer one request with it.

The stand-ins in `python_backends/backends` read a configuration as the native backends do: with the same options of the
engine, the same comparison with the file and the same refusals. So a build runs their code in its own process.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.publish.records import read_record, write_record
from tritonkit.repository.render.message import parse_text
from tritonkit.repository.render.values import ModelPlan
from tritonkit.resources import shipped, shipped_modules
from tritonkit.watched import step

__all__ = ["try_serving"]

RECORD = "loaded.json"
_BACKENDS = "python_backends/backends"
_OPENERS = {"onnxruntime": ("onnxruntime_network", "model.onnx"), "openvino": ("openvino_opening", "model.xml")}
"""Backend -> the module of its stand-in that opens a network, and the network's file."""
_NATIVE_ONLY = ("batch_input", "batch_output")
"""Fields that the stand-ins do not have."""


def try_serving(rendered: Rendered, request: Batch | None) -> None:
    """Load a model as a server with its configuration will, and answer one request.

    A configuration that was tried before is not tried again. Models that only a server can load are skipped.

    Args:
        rendered: the model to load.
        request: the model's input; None loads the model and sends nothing.

    Raises:
        BuildError: a server would refuse the model, or the request.
    """
    plan = rendered.plan
    config = _config(rendered)
    if plan.backend not in _OPENERS or not _can_try(plan, config):
        return
    record, tried = rendered.artifact.folder / RECORD, _fingerprint(rendered)
    if read_record(record).get("tried") == tried:
        return
    with _refusals(rendered):
        opening, requests = _stand_in(plan.backend)
        file = rendered.artifact.folder / _OPENERS[plan.backend][1]
        with step(f"loading {plan.name} as the server will"):
            network = opening.network_of(plan.name, file, config)
            if request is not None:
                _answer(config, network, requests.Request, request)
    write_record(record, {"tried": tried})


def _can_try(plan: ModelPlan, config: Mapping[str, Any]) -> bool:
    tensors = (*plan.inputs, *plan.outputs)
    sequences = plan.sequence_batching
    return (
        importlib.util.find_spec(str(plan.backend)) is not None
        and all(tensor.dtype != "BF16" for tensor in tensors)
        and not (sequences and sequences.state)
        and not any(config.get(field) for field in _NATIVE_ONLY)
        # Others lie where the server runs.
        and plan.version_files.keys() >= {*plan.model_operations.op_library_filename}
        and "default_model_filename" not in config
    )


def _config(rendered: Rendered) -> dict[str, Any]:
    """The configuration as Triton hands it to a backend."""
    from google.protobuf import json_format

    message = parse_text(rendered.config, f"{rendered.plan.name}/config.pbtxt")
    config: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    for tensor in (*config.get("input", ()), *config.get("output", ())):
        tensor.setdefault("dims", [])
    return {"max_batch_size": 0, "input": [], "output": []} | config


@cache
def _stand_in(backend: str) -> tuple[Any, ...]:
    """The modules of a stand-in that open a network and describe a request."""
    folders = (_BACKENDS, f"{_BACKENDS}/{backend}")
    return shipped_modules(folders, _OPENERS[backend][0], "backend_batch")


def _answer(config: Mapping[str, Any], network: Any, request: Any, sample: Batch) -> None:
    """Run a request, and compare the shapes of its outputs with the configuration's."""
    outputs = {entry["name"]: _network_dims(entry) for entry in config["output"]}
    inputs = {name: _on_the_wire(array) for name, array in sample.items()}
    [answer] = network.answer([request(inputs, list(outputs))])
    if isinstance(answer, Exception):
        raise answer
    for name, dims in outputs.items():
        shape = answer[name].shape[1 if config["max_batch_size"] else 0 :]
        fits = len(shape) == len(dims) and all(size in (-1, have) for size, have in zip(dims, shape, strict=True))
        if not fits:
            raise ValueError(f"output {name} has the shape {list(shape)}, config.pbtxt says {list(dims)}")


def _network_dims(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """The dims that a network gives: the dims of `reshape` if the configuration has one."""
    dims = entry["reshape"].get("shape", ()) if "reshape" in entry else entry["dims"]
    return tuple(map(int, dims))


def _on_the_wire(array: Any) -> Any:
    """Texts as bytes, as requests carry them."""
    import numpy as np

    if array.dtype.kind not in "OSU":
        return array
    flat = [text if isinstance(text, bytes) else str(text).encode() for text in array.ravel()]
    texts = np.empty(len(flat), dtype=object)
    texts[:] = flat
    return texts.reshape(array.shape)


@contextlib.contextmanager
def _refusals(rendered: Rendered) -> Iterator[None]:
    """Turn the server's refusal into an error of the build."""
    try:
        yield
    except (BuildError, MemoryError):
        raise
    except Exception as error:
        raise BuildError(
            f"models/{rendered.artifact.model}",
            found=f"a server would not serve {rendered.artifact.variant}: {error}",
            wanted="files and a configuration that fit each other: nothing is published",
            todo="correct serving in model.yaml; if nothing there is unusual, report this",
        ) from error


def _fingerprint(rendered: Rendered) -> str:
    """Hash of everything that a trial depends on in addition to the artifact: the configuration, and the code that
    reads it."""
    digest = hashlib.sha256(rendered.config.encode())
    folder = shipped(_BACKENDS)
    for file in sorted([*folder.glob("*.py"), *folder.glob(f"{rendered.plan.backend}/*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()
