"""A server in memory, for the tests of programs that call models.

Requests and answers take the same path as on the wire (checked, encoded, decoded); only a Python
function on numpy arrays stands where the model would be:

    double = FakeModel(
        inputs={"x": ("FP32", [2])},
        outputs={"y": ("FP32", [2])},
        function=lambda given: {"y": given["x"] * 2},
    )
    with Client(transport=MemoryTransport({"double": double})) as client:
        client.model("double").predict(x=[1.0, 2.0])["y"]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tritonkit.client.conform import conform
from tritonkit.client.core import messages
from tritonkit.client.signature import TensorSpec
from tritonkit.client.tensors import from_raw, to_raw
from tritonkit.errors import (
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    TritonkitError,
    UsageError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.transport import Method

__all__ = ["FakeModel", "MemoryTransport"]

TensorsOf: TypeAlias = Mapping[str, tuple[str, Sequence[int]]]


@dataclass(frozen=True)
class FakeModel:
    """A model made of a function.

    Args:
        inputs: datatype and dims of one item by name, such as `{"image": ("BYTES", [1])}`.
        outputs: the same for what the function gives.
        function: takes the input arrays by name (batch axis first if `max_batch_size` is above 0)
            and gives the output arrays. A `TritonkitError` it raises reaches the caller as it is,
            so a test can make the server fail; any other becomes an `InferenceError`, as in Triton.
        max_batch_size: as in `config.pbtxt`; 0 means the model has no batch axis.
        version: the version the server would report.
    """

    inputs: TensorsOf
    outputs: TensorsOf
    function: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]
    max_batch_size: int = 8
    version: str = "1"


class MemoryTransport:
    """Answers calls from functions. Threads may share it.

    Args:
        models: the models "served", by name.
    """

    address = "memory"

    def __init__(self, models: Mapping[str, FakeModel]) -> None:
        self._models = dict(models)
        self._counts = {name: [0, 0] for name in self._models}
        self._lock = threading.Lock()
        self._closed = False

    def call(self, method: Method, request: Any, timeout_s: float) -> Any:
        """See `Transport.call`; a function that ran longer than the timeout ends as on the wire."""
        if self._closed:
            raise UsageError("client of memory", found="it was closed", todo="make a new Client")
        started = time.perf_counter()
        answer = getattr(self, _HANDLERS[method])(request)
        if time.perf_counter() - started > timeout_s:
            raise DeadlineExceeded("memory", found=f"no answer within {timeout_s:.3g} s")
        return answer

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True

    def _find(self, name: str, version: str) -> FakeModel:
        model = self._models.get(name)
        if model is None or version not in ("", model.version):
            raise ModelNotFound(
                f"model {name} at memory",
                found=f"no version {version} of it" if model else "no such model",
                wanted=f"one of {', '.join(self._models) or 'none'}",
            )
        return model

    def _live(self, request: Any) -> Any:
        return messages().ServerLiveResponse(live=True)

    def _ready(self, request: Any) -> Any:
        return messages().ServerReadyResponse(ready=True)

    def _server(self, request: Any) -> Any:
        return messages().ServerMetadataResponse(name="memory", version="0")

    def _model_ready(self, request: Any) -> Any:
        model = self._models.get(request.name)
        ready = model is not None and request.version in ("", model.version)
        return messages().ModelReadyResponse(ready=ready)

    def _index(self, request: Any) -> Any:
        response = messages().RepositoryIndexResponse()
        for name, model in self._models.items():
            response.models.add(name=name, version=model.version, state="READY")
        return response

    def _load(self, request: Any) -> Any:
        self._find(request.model_name, "")
        return messages().RepositoryModelLoadResponse()

    def _metadata(self, request: Any) -> Any:
        model = self._find(request.name, request.version)
        response = messages().ModelMetadataResponse(name=request.name, versions=[model.version])
        batch = [-1] if model.max_batch_size else []
        for side, tensors in ((response.inputs, model.inputs), (response.outputs, model.outputs)):
            for name, (datatype, dims) in tensors.items():
                side.add(name=name, datatype=datatype, shape=[*batch, *dims])
        return response

    def _config(self, request: Any) -> Any:
        model = self._find(request.name, request.version)
        response = messages().ModelConfigResponse()
        config = response.config
        config.name, config.max_batch_size = request.name, model.max_batch_size
        for side, tensors in ((config.input, model.inputs), (config.output, model.outputs)):
            for name, (datatype, dims) in tensors.items():
                enum = f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}"
                side.add(name=name, data_type=enum, dims=dims)
        return response

    def _statistics(self, request: Any) -> Any:
        model = self._find(request.name, request.version)
        items, runs = self._counts[request.name]
        response = messages().ModelStatisticsResponse()
        entry = response.model_stats.add(name=request.name, version=model.version)
        entry.inference_count, entry.execution_count = items, runs
        entry.inference_stats.success.count = runs
        return response

    def _infer(self, request: Any) -> Any:
        model = self._find(request.model_name, request.model_version)
        tensors = zip(request.inputs, request.raw_input_contents, strict=True)
        given = {
            tensor.name: from_raw(raw, tensor.datatype, tuple(tensor.shape))
            for tensor, raw in tensors
        }
        gives = _run(request.model_name, model, given)
        with self._lock:
            count = self._counts[request.model_name]
            count[0] += len(next(iter(given.values()), ())) if model.max_batch_size else 1
            count[1] += 1
        wanted = [output.name for output in request.outputs] or list(model.outputs)
        return _response(request.model_name, model, gives, wanted)


_HANDLERS: dict[Method, str] = {
    "ModelConfig": "_config",
    "ModelInfer": "_infer",
    "ModelMetadata": "_metadata",
    "ModelReady": "_model_ready",
    "ModelStatistics": "_statistics",
    "RepositoryIndex": "_index",
    "RepositoryModelLoad": "_load",
    "ServerLive": "_live",
    "ServerMetadata": "_server",
    "ServerReady": "_ready",
}


def _run(name: str, model: FakeModel, given: Mapping[str, NDArray[Any]]) -> Mapping[str, Any]:
    try:
        return model.function(given)
    except TritonkitError:
        raise
    except Exception as error:
        raise InferenceError(
            f"model {name} at memory", found=f"{type(error).__name__}: {error}"
        ) from error


def _response(name: str, model: FakeModel, gives: Mapping[str, Any], wanted: Sequence[str]) -> Any:
    response = messages().ModelInferResponse(model_name=name, model_version=model.version)
    for output in wanted:
        where = f"model {name} at memory, output {output}"
        if output not in gives:
            raise InferenceError(where, found="the function gave no such output")
        datatype, dims = model.outputs[output]
        spec = TensorSpec(output, datatype, tuple(dims), batched=model.max_batch_size > 0)
        array = conform(gives[output], spec, where)
        response.outputs.add(name=output, datatype=datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array, datatype))
    return response
