"""A server made of Python functions: request messages in, response messages out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tritonkit.client.conform import conform
from tritonkit.client.wire.messages import schema
from tritonkit.client.wire.parameters import read_parameters
from tritonkit.client.wire.signature import IDEMPOTENT, INDEPENDENT_ITEMS, TensorSpec
from tritonkit.client.wire.tensors import from_raw, to_raw
from tritonkit.errors import InferenceError, ModelNotFound, Overloaded, TritonkitError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.wire.transport import Method

__all__ = ["FakeModel", "FakeServer", "Given"]

_OF_TRITON = frozenset(
    ["timeout", "priority", "sequence_id", "sequence_start", "sequence_end", "triton_enable_empty_final_response"]
)
"""Request parameters that Triton reserves for itself: no model sees them."""

TensorsOf: TypeAlias = Mapping[str, tuple[str, Sequence[int]]]
Gives: TypeAlias = Mapping[str, Any]


class Given(dict[str, "NDArray[Any]"]):
    """The input arrays of one request by name; `parameters` and `request_id` are the request's."""

    parameters: Mapping[str, Any]
    request_id: str


@dataclass(frozen=True)
class FakeModel:
    """A model made of a function.

    Args:
        inputs: datatype and dims of one item by name, such as `{"image": ("BYTES", [1])}`.
        outputs: datatype and dims of the function's results, in the same form.
        function: takes the input arrays by name (batch axis first if `max_batch_size` is above 0)
            and returns the output arrays. Its argument is a `Given`, which also has the request's
            parameters. A generator function makes a decoupled model, which answers a stream with each
            value it yields. A `TritonkitError` that it raises reaches the caller unchanged, so a test
            can make the server fail; any other error becomes an `InferenceError`, as in Triton.
        max_batch_size: the largest batch, as in `config.pbtxt`; 0 means the model has no batch axis.
        version: the version the server would report.
        idempotent: whether its configuration declares that a request may run twice.
        independent_items: the configuration's statement that items of a batch are independent: `proven` or
            `declared`; empty: none.
    """

    inputs: TensorsOf
    outputs: TensorsOf
    function: Callable[[Given], Gives | Iterator[Gives]]
    max_batch_size: int = 8
    version: str = "1"
    idempotent: bool = False
    independent_items: Literal["", "proven", "declared"] = ""

    @property
    def decoupled(self) -> bool:
        """Whether it can give any number of answers to one request."""
        return isgeneratorfunction(self.function)


class FakeServer:
    """Answers messages as Triton would. Threads may share it.

    Args:
        models: the models "served", by name.
    """

    def __init__(self, models: Mapping[str, FakeModel]) -> None:
        self._models = dict(models)
        self._counts = {name: [0, 0] for name in self._models}
        self._lock = threading.Lock()

    def answer(self, method: Method, body: bytes) -> bytes:
        """The response message to a request message.

        Raises:
            ModelNotFound: there is no such model or version.
            InferenceError: the function failed, or this server cannot do that.
            TritonkitError: the function's own error.
        """
        handler = _HANDLERS.get(method)
        if handler is None:
            raise InferenceError("memory", found=f"a server in memory does not support {method}")
        request = _read(f"{method}Request", body)
        response: bytes = getattr(self, handler)(request).SerializeToString()
        return response

    def stream(self, body: bytes) -> Iterator[bytes]:
        """The messages of a stream in answer to one request, each made when it is read.

        A failed request is a message too, as in Triton, and the stream goes on; errors of the
        connection (`ServerUnavailable`, `Overloaded`, `DeadlineExceeded`) are raised.
        """
        request = _read("ModelInferRequest", body)
        try:
            for response in self._responses(request):
                yield schema().ModelStreamInferResponse(infer_response=response).SerializeToString()
        except (InferenceError, ModelNotFound) as error:
            if isinstance(error, Overloaded):
                raise
            failed = schema().ModelInferResponse(model_name=request.model_name, id=request.id)
            yield (
                schema()
                .ModelStreamInferResponse(error_message=str(error), infer_response=_marked(failed, final=True))
                .SerializeToString()
            )

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
        return schema().ServerLiveResponse(live=True)

    def _ready(self, request: Any) -> Any:
        return schema().ServerReadyResponse(ready=True)

    def _server(self, request: Any) -> Any:
        return schema().ServerMetadataResponse(name="memory", version="0")

    def _model_ready(self, request: Any) -> Any:
        model = self._models.get(request.name)
        ready = model is not None and request.version in ("", model.version)
        return schema().ModelReadyResponse(ready=ready)

    def _index(self, request: Any) -> Any:
        response = schema().RepositoryIndexResponse()
        for name, model in self._models.items():
            response.models.add(name=name, version=model.version, state="READY")
        return response

    def _load(self, request: Any) -> Any:
        self._find(request.model_name, "")
        if request.parameters:
            raise InferenceError(
                f"model {request.model_name} at memory",
                found="a server in memory does not support a load with parameters",
                wanted="a load of the model as it is",
            )
        return schema().RepositoryModelLoadResponse()

    def _metadata(self, request: Any) -> Any:
        model = self._find(request.name, request.version)
        response = schema().ModelMetadataResponse(name=request.name, versions=[model.version])
        batch = [-1] if model.max_batch_size else []
        for side, tensors in ((response.inputs, model.inputs), (response.outputs, model.outputs)):
            for name, (datatype, dims) in tensors.items():
                side.add(name=name, datatype=datatype, shape=[*batch, *dims])
        return response

    def _config(self, request: Any) -> Any:
        model = self._find(request.name, request.version)
        response = schema().ModelConfigResponse()
        config = response.config
        config.name, config.max_batch_size = request.name, model.max_batch_size
        config.model_transaction_policy.decoupled = model.decoupled
        if model.idempotent:
            config.parameters[IDEMPOTENT].string_value = "true"
        if model.independent_items:
            config.parameters[INDEPENDENT_ITEMS].string_value = model.independent_items
        for side, tensors in ((config.input, model.inputs), (config.output, model.outputs)):
            for name, (datatype, dims) in tensors.items():
                enum = f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}"
                side.add(name=name, data_type=enum, dims=dims)
        return response

    def _statistics(self, request: Any) -> Any:
        model = self._find(request.name, request.version)
        items, runs = self._counts[request.name]
        response = schema().ModelStatisticsResponse()
        entry = response.model_stats.add(name=request.name, version=model.version)
        entry.inference_count, entry.execution_count = items, runs
        entry.inference_stats.success.count = runs
        return response

    def _infer(self, request: Any) -> Any:
        model = self._find(request.model_name, request.model_version)
        if model.decoupled:
            raise InferenceError(
                f"model {request.model_name} at memory",
                found="the model is decoupled: it may give any number of answers",
                todo="call it over a stream",
            )
        inputs = self._inputs(model, request)
        return _response(request, model, _run(request.model_name, model, inputs))

    def _responses(self, request: Any) -> Iterator[Any]:
        """Responses to one request of a stream, marked as Triton marks the last."""
        model = self._find(request.model_name, request.model_version)
        if not model.decoupled:
            yield _marked(self._infer(request), final=True)
            return
        inputs = self._inputs(model, request)
        with closing(_run_decoupled(request.model_name, model, inputs)) as several:
            for gives in several:
                yield _marked(_response(request, model, gives), final=False)
        if request.parameters["triton_enable_empty_final_response"].bool_param:
            yield _marked(_empty(request, model), final=True)

    def _inputs(self, model: FakeModel, request: Any) -> Given:
        tensors = zip(request.inputs, request.raw_input_contents, strict=True)
        try:
            inputs = Given(
                (tensor.name, from_raw(raw, tensor.datatype, tuple(tensor.shape))) for tensor, raw in tensors
            )
            inputs.request_id = request.id
            sent = read_parameters(request).items()
            inputs.parameters = {name: value for name, value in sent if name not in _OF_TRITON}
        except ValueError as error:
            raise _unreadable("ModelInferRequest", error) from error
        with self._lock:
            count = self._counts[request.model_name]
            count[0] += len(next(iter(inputs.values()), ())) if model.max_batch_size else 1
            count[1] += 1
        return inputs


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


def _read(kind: str, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return getattr(schema(), kind).FromString(body)
    except DecodeError as error:
        raise _unreadable(kind, error) from error


def _unreadable(kind: str, error: Exception) -> InferenceError:
    return InferenceError("memory", found=f"a {kind} that cannot be read", details=str(error))


def _run(name: str, model: FakeModel, inputs: Given) -> Any:
    try:
        return model.function(inputs)
    except TritonkitError:
        raise
    except Exception as error:
        raise _failed(name, error) from error


def _run_decoupled(name: str, model: FakeModel, inputs: Given) -> Generator[Gives, None, None]:
    try:
        yield from model.function(inputs)  # type: ignore[misc]  # a generator: `decoupled`
    except TritonkitError:
        raise
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> InferenceError:
    return InferenceError(f"model {name} at memory", found=f"{type(error).__name__}: {error}")


def _response(request: Any, model: FakeModel, gives: Gives) -> Any:
    response = _empty(request, model)
    classes = {
        output.name: output.parameters["classification"].int64_param
        for output in request.outputs
        if "classification" in output.parameters
    }
    for output in [output.name for output in request.outputs] or list(model.outputs):
        where = f"model {request.model_name} at memory, output {output}"
        if output not in gives:
            raise InferenceError(where, found="the function gave no such output")
        datatype, dims = model.outputs[output]
        spec = TensorSpec(output, datatype, tuple(dims), batched=model.max_batch_size > 0)
        array = conform(gives[output], spec, where)
        if output in classes:
            datatype, array = "BYTES", _ranked(array, spec, classes[output])
        response.outputs.add(name=output, datatype=datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array, datatype))
    return response


def _ranked(array: NDArray[Any], spec: TensorSpec, count: int) -> NDArray[Any]:
    """The best classes of each item, best first, as Triton writes them."""
    rows = array.reshape(len(array) if spec.batched else 1, -1)
    best = [np.argsort(-row.astype(float), kind="stable")[:count] for row in rows]
    texts = [[f"{float(row[at]):f}:{at}".encode() for at in places] for row, places in zip(rows, best, strict=True)]
    return np.array(texts if spec.batched else texts[0], dtype=object)


def _empty(request: Any, model: FakeModel) -> Any:
    return schema().ModelInferResponse(model_name=request.model_name, model_version=model.version, id=request.id)


def _marked(response: Any, *, final: bool) -> Any:
    response.parameters["triton_final_response"].bool_param = final
    return response
