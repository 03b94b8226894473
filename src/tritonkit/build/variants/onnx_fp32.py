"""`onnx-fp32`: the network as it is, exported to ONNX or taken from an ONNX file."""

from __future__ import annotations

import shutil
from pathlib import Path

from tritonkit.build.artifact import Measured, Signature, TensorInfo
from tritonkit.build.check import compare, single_items
from tritonkit.build.export import export_onnx
from tritonkit.build.onnx_file import (
    check_file,
    hold_against_spec,
    open_session,
    read_signature,
    run_session,
)
from tritonkit.build.samples import Batch, batches, dummy_batch
from tritonkit.build.torch_module import load_module, run_module
from tritonkit.errors import BuildError
from tritonkit.spec import Spec, resolve_file

__all__ = ["build"]

FILE = "model.onnx"


def build(spec: Spec, folder: Path) -> tuple[Signature, Measured]:
    """Write model.onnx into `folder`, checked against PyTorch or, for an ONNX file, against
    ONNX Runtime with every graph optimisation off."""
    if spec.model.network.torch is not None:
        return _from_torch(spec, folder / FILE)
    return _from_onnx(spec, folder / FILE)


def _batched(spec: Spec) -> bool:
    return spec.model.serving.max_batch_size != 0


def _from_torch(spec: Spec, file: Path) -> tuple[Signature, Measured]:
    where = f"{spec.file} network.torch"
    module = load_module(spec)
    given = batches(spec, _spec_signature(spec))
    run_module(spec, module, given[0])  # its own mistakes, before the exporter's words for them
    export_onnx(
        spec,
        module,
        dummy_batch(spec, _spec_signature(spec), 3, largest=True),
        _batched(spec),
        file,
    )
    signature = read_signature(check_file(file, where), where, _batched(spec))
    signature = hold_against_spec(signature, spec, "the exported file")
    session = open_session(file, where)
    measured = compare(
        spec,
        given,
        single_items(given, _batched(spec)),
        lambda batch: run_session(session, batch, where),
        lambda batch: run_module(spec, module, batch),
    )
    return signature, measured


def _spec_signature(spec: Spec) -> Signature:
    """Inputs as the spec gives them, before there is a file to read them from."""
    inputs = tuple(TensorInfo.of(n, tensor) for n, tensor in spec.model.network.inputs.items())
    return Signature(inputs, (), _batched(spec))


def _from_onnx(spec: Spec, file: Path) -> tuple[Signature, Measured]:
    where = f"{spec.file} network.onnx"
    reference = spec.model.network.onnx
    assert reference is not None  # noqa: S101  the caller chose this source
    source = resolve_file(reference, spec, "network.onnx")
    model = check_file(source, where)
    signature = hold_against_spec(read_signature(model, where, _batched(spec)), spec, source.name)
    shutil.copyfile(source, file)
    plain, optimised = open_session(file, where, optimised=False), open_session(file, where)
    given = batches(spec, signature)
    _hold_to_static_outputs(spec, plain, given, where)
    measured = compare(
        spec,
        given,
        single_items(given, signature.batched),
        lambda batch: run_session(optimised, batch, where),
        lambda batch: run_session(plain, batch, where),
    )
    return signature, measured


def _hold_to_static_outputs(spec: Spec, session: object, given: list[Batch], where: str) -> None:
    """Inputs of one shape and other values must give outputs of one shape."""
    import numpy as np

    batch = given[0]
    changed = {name: array[::-1] if array.ndim else array for name, array in batch.items()}
    zeros = {name: np.zeros_like(array) for name, array in batch.items() if array.dtype != object}
    first = run_session(session, batch, where)
    for other in (changed, {**batch, **zeros}):
        for name, array in run_session(session, other, where).items():
            if array.shape != first[name].shape:
                raise BuildError(
                    where,
                    found=f"the shape of output {name} depends on the data: {list(first[name].shape)}"
                    f" or {list(array.shape)} for one input shape",
                    wanted="output shapes that follow from input shapes: a batch must have one shape",
                    todo="end the network before that operator, or return a fixed-size result with a count",
                )
