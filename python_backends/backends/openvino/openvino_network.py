"""Reads a network and checks it against the configuration, as Triton's native backend does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backend_config import ModelError, TensorSpec, configured_dims, is_batched, text_parameter, triton_dtype
from openvino import Core, Model, PartialShape, Type
from openvino.preprocess import PrePostProcessor
from openvino_config import DEFAULT_PRECISION, PRECISION, is_yes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

TYPES = {
    "BOOL": Type.boolean,
    "UINT8": Type.u8,
    "UINT16": Type.u16,
    "UINT32": Type.u32,
    "UINT64": Type.u64,
    "INT8": Type.i8,
    "INT16": Type.i16,
    "INT32": Type.i32,
    "INT64": Type.i64,
    "FP16": Type.f16,
    "FP32": Type.f32,
}
PRECISION_ENTRY = ["runtime_options", PRECISION]


def read_network(core: Core, file: Path, config: Mapping[str, Any]) -> Model:
    """The network with the configuration's datatypes and input sizes, its batch axis free.

    As in the native backend a tensor of another datatype is converted, and RESHAPE_IO_LAYERS takes the sizes from the
    configuration. ModelError names the first difference.
    """
    _extend(core, config)
    try:
        model = core.read_model(file)
    except Exception as error:  # OpenVINO raises RuntimeError for everything
        raise ModelError(f"OpenVINO cannot load {file}: {first_reason(error)}") from error
    _check_names(model, config)
    if is_yes(config, "RESHAPE_IO_LAYERS"):
        _reshape(model, _given_shapes(config))
    else:
        for entry in config["input"]:
            _check_dims("input", entry, _dims(model.input(entry["name"])), config, batch=None)
    model = _with_types(model, config)
    _check_outputs(model, config)
    if is_batched(config):
        _reshape(model, {**_shapes_with_batch(model, -1)})
    return model


def precision(model: Model) -> str:
    """The precision that the file itself requests, else FP32."""
    if not model.has_rt_info(PRECISION_ENTRY):
        return DEFAULT_PRECISION
    return str(model.get_rt_info(PRECISION_ENTRY).astype(str))


def input_specs(model: Model, config: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The network's inputs by name."""
    return _specs(config["input"], model.input)


def output_specs(model: Model, config: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The network's outputs by name."""
    return _specs(config["output"], model.output)


def scalars(model: Model, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Outputs without axes, each with the shape that the configuration gives it."""
    return {
        entry["name"]: configured_dims(entry) for entry in config["output"] if not _dims(model.output(entry["name"]))
    }


def sized(model: Model, config: Mapping[str, Any], batch: int) -> Model | None:
    """A copy of the network for one batch size (0: it has no batch), all other sizes as configured.

    None if an input has another free axis.
    """
    lead = [batch] if batch else []
    shapes = {
        e["name"]: [*lead, *configured_dims(e)] if batch or _dims(model.input(e["name"])) else []
        for e in config["input"]
    }
    if any(size < 0 for shape in shapes.values() for size in shape):
        return None
    copy = model.clone()
    _reshape(copy, shapes)
    return copy


def first_reason(error: Exception) -> str:
    """The reason of a failure, without the lines about places in OpenVINO's source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Exception from ", "Check '"))]
    return " ".join(reasons or lines)


def _extend(core: Core, config: Mapping[str, Any]) -> None:
    path = text_parameter(config, "CPU_EXTENSION_PATH")
    if not path:
        return
    try:
        core.add_extension(path)
    except RuntimeError as error:
        raise ModelError(f"parameter CPU_EXTENSION_PATH: {first_reason(error)}") from error


def _check_names(model: Model, config: Mapping[str, Any]) -> None:
    for side, nodes in (("input", model.inputs), ("output", model.outputs)):
        names = {name for node in nodes for name in node.get_names()}
        for entry in config[side]:
            if entry["name"] not in names:
                raise ModelError(
                    f"{side} '{entry['name']}' is in config.pbtxt and not in the model, which has {sorted(names)}"
                )
            if triton_dtype(entry) not in TYPES:
                raise ModelError(f"{side} '{entry['name']}': unsupported datatype {entry['data_type']}")
    if len(model.inputs) != len(config["input"]):
        raise ModelError(
            f"config.pbtxt has {len(config['input'])} inputs, the model has {len(model.inputs)}:"
            f" {sorted(node.get_any_name() for node in model.inputs)}"
        )


def _with_types(model: Model, config: Mapping[str, Any]) -> Model:
    steps = PrePostProcessor(model)
    for entry in config["input"]:
        steps.input(entry["name"]).tensor().set_element_type(TYPES[triton_dtype(entry)])
    for entry in config["output"]:
        steps.output(entry["name"]).tensor().set_element_type(TYPES[triton_dtype(entry)])
    return steps.build()


def _check_outputs(model: Model, config: Mapping[str, Any]) -> None:
    """Outputs at the largest batch, as the native backend compiles the network."""
    largest = int(config.get("max_batch_size", 0))
    if largest:
        _reshape(model, _shapes_with_batch(model, largest))
    for entry in config["output"]:
        dims = _dims(model.output(entry["name"]))
        _check_dims("output", entry, dims, config, batch=largest or None)


def _check_dims(
    side: str, entry: Mapping[str, Any], dims: tuple[int, ...], config: Mapping[str, Any], batch: int | None
) -> None:
    """Whether configured dims fit the network's. A free axis of the network fits any size; -1 in the configuration fits
    any input axis of a batched model, and otherwise only a free one. `batch` is the required first axis."""
    lead = (-1 if batch is None else batch,) if is_batched(config) else ()
    full = (*lead, *configured_dims(entry))
    if not dims and set(full) <= {1}:
        return  # a scalar is configured as [1], since Triton has no rank 0
    loose = side == "input" and is_batched(config)
    fits = len(full) == len(dims) and all(
        have in (-1, want) or (loose and (want == -1 or place == 0))
        for place, (want, have) in enumerate(zip(full, dims, strict=True))
    )
    if not fits:
        subject = "the batch axis and dims" if lead else "dims"
        raise ModelError(
            f"{side} '{entry['name']}': config.pbtxt says {list(full)} ({subject}), the model has {list(dims)}"
        )


def _given_shapes(config: Mapping[str, Any]) -> dict[str, list[int]]:
    lead = [-1] if is_batched(config) else []
    return {entry["name"]: [*lead, *configured_dims(entry)] for entry in config["input"]}


def _shapes_with_batch(model: Model, batch: int) -> dict[str, list[int]]:
    return {node.get_any_name(): [batch, *_dims(node)[1:]] for node in model.inputs}


def _reshape(model: Model, shapes: Mapping[str, list[int]]) -> None:
    try:
        model.reshape({name: PartialShape(shape) for name, shape in shapes.items()})
    except RuntimeError as error:
        raise ModelError(f"the model cannot take inputs of {shapes}: {first_reason(error)}") from error


def _specs(entries: Sequence[Mapping[str, Any]], node: Callable[[str], Any]) -> dict[str, TensorSpec]:
    return {
        entry["name"]: TensorSpec(entry["name"], triton_dtype(entry), _dims(node(entry["name"]))) for entry in entries
    }


def _dims(node: Any) -> tuple[int, ...]:
    """Sizes, -1 where one is free, with or without bounds."""
    shape = node.get_partial_shape()
    if shape.rank.is_dynamic:
        raise ModelError(f"'{node.get_any_name()}' has no fixed number of axes")
    return tuple(dim.get_length() if dim.is_static else -1 for dim in shape)
