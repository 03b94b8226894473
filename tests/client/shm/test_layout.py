"""The places of tensors in a region."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.client.shm import SharedMemory, output_sizes
from tritonkit.client.shm.layout import lay_out, size_class, sizes_of
from tritonkit.client.wire.signature import ModelSignature, TensorSpec
from tritonkit.client.wire.tensors import to_raw
from tritonkit.errors import UsageError


@given(st.lists(st.integers(0, 5000), max_size=6), st.lists(st.integers(0, 5000), max_size=6))
def test_places_do_not_overlap(inputs: list[int], outputs: list[int]) -> None:
    """Tensors start at multiples of 64 and follow each other; the size holds them all."""
    layout = lay_out(
        {f"i{n}": size for n, size in enumerate(inputs)}, {f"o{n}": size for n, size in enumerate(outputs)}
    )
    end = 0
    for start, size in (*layout.inputs.values(), *layout.outputs.values()):
        assert start % 64 == 0
        assert start >= end
        end = start + size
    assert layout.size >= end


def test_empty_tensors_have_no_place() -> None:
    """Triton refuses a place of no bytes, so an empty tensor is not given one."""
    layout = lay_out(sizes_of({"x": ("FP32", np.zeros((1, 0), np.float32))}), {"y": 0})
    assert (layout.inputs, layout.outputs, layout.size) == ({}, {}, 0)


def test_text_is_measured_as_it_is_sent() -> None:
    """BYTES take 4 bytes and their length each, BF16 two."""
    tensors = {
        "text": ("BYTES", np.array([[b"abc"], [b""]], object)),
        "half": ("BF16", np.ones((2, 3), np.float32)),
        "number": ("INT64", np.ones((5,), np.int64)),
    }
    assert sizes_of(tensors) == {"text": 11, "half": 12, "number": 40}
    for datatype, array in tensors.values():
        assert sizes_of({"x": (datatype, array)})["x"] == len(to_raw(array, datatype))


@given(st.integers(1, 2**40))
def test_a_class_wastes_at_most_a_quarter(size: int) -> None:
    """Classes are whole pages, hold what they are for, and are their own class."""
    kind = size_class(size)
    assert size <= kind <= max(64 * 1024, size * 5 // 4 + 1)
    assert kind % 4096 == 0
    assert size_class(kind) == kind


def test_only_known_sizes_are_promised() -> None:
    """Outputs of open shape, of BYTES, or of an unknown batch are left to the message."""

    def spec(name: str, datatype: str, dims: tuple[int, ...], batched: bool) -> TensorSpec:
        return TensorSpec(name, datatype, dims, batched)

    outputs = [
        spec("fixed", "FP16", (3, 4), True),
        spec("open", "FP32", (-1,), True),
        spec("text", "BYTES", (1,), True),
        spec("half", "BF16", (5,), True),
        spec("alone", "INT64", (2,), False),
    ]
    model = ModelSignature("m", ("1",), 8, {}, {output.name: output for output in outputs})
    assert output_sizes(model, model.outputs, 3) == {"fixed": 72, "half": 30, "alone": 16}
    assert output_sizes(model, ("fixed", "alone"), None) == {"alone": 16}


@pytest.mark.parametrize("wrong", [{"smallest": 0}, {"limit": 10}, {"device": -1}])
def test_settings_are_checked(wrong: dict[str, int]) -> None:
    """A value out of range is told by its name."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        SharedMemory(**wrong)
