"""The table of datatypes against the libraries whose names it gives."""

from __future__ import annotations

import importlib
from typing import get_args

import numpy as np
import pytest

from tritonkit.datatypes import DATATYPES, DataType, Datatype

ROWS = pytest.mark.parametrize("row", DATATYPES.values(), ids=DATATYPES)


def test_every_datatype_of_triton_is_known() -> None:
    """The table has each type of Triton's configuration schema, and a spec may name each."""
    from tritonclient.grpc import model_config_pb2

    names = set(model_config_pb2.DataType.keys()) - {"TYPE_INVALID"}
    assert {row.config for row in DATATYPES.values()} == names
    assert set(get_args(DataType)) == set(DATATYPES)


@ROWS
def test_sizes_are_those_of_triton_and_numpy(row: Datatype) -> None:
    """The bytes of an element are numpy's, and the numpy type is the one tritonclient takes."""
    utils = importlib.import_module("tritonclient.utils")
    if row.numpy is not None:
        assert np.dtype(row.numpy).itemsize == row.size
        assert utils.np_to_triton_dtype(np.dtype(row.numpy)) == row.name


@ROWS
def test_onnx_names_are_those_of_onnx(row: Datatype) -> None:
    """onnx knows the name, and calls the numpy type by it."""
    onnx = pytest.importorskip("onnx")
    number = onnx.TensorProto.DataType.Value(row.onnx)
    if row.numpy is not None:
        assert onnx.helper.tensor_dtype_to_np_dtype(number) == np.dtype(row.numpy)


@ROWS
def test_torch_names_are_those_of_torch(row: Datatype) -> None:
    """A tensor of the named type has elements of the table's size."""
    torch = pytest.importorskip("torch")
    if row.torch is not None:
        assert torch.empty(1, dtype=getattr(torch, row.torch)).element_size() == row.size


@ROWS
def test_contents_fields_are_those_of_the_protocol(row: Datatype) -> None:
    """The field of InferTensorContents has the kind of number that the datatype needs."""
    from tritonclient.grpc import service_pb2

    fields = service_pb2.InferTensorContents.DESCRIPTOR.fields_by_number
    kinds = {"BOOL": "bool", "BYTES": "bytes", "FP32": "fp32", "FP64": "fp64"}
    width = "64" if row.size == 8 else ""
    kind = kinds.get(row.name, f"{row.name.rstrip('0123456789').lower()}{width}")
    if row.contents_field is not None:
        assert fields[row.contents_field].name == f"{kind}_contents"
