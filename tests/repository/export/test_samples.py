"""Calibration and training data: what a hook may return, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.samples import batches, hook_training, read_calibration

TEXT = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
"""
SIGNATURE = Signature((TensorInfo("x", "FP32", (4,)),), (), batched=True)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[]", "no batch"),
        ("None", "NoneType"),
        ("[{'x': np.ones((2, 5), np.float32)}]", "[2, 5]"),
        ("[{'x': np.ones((2, 4))}]", "float64"),
        ("[{'z': np.ones((2, 4), np.float32)}]", "['z']"),
        ("[{'x': np.ones((0, 4), np.float32)}]", "[0] items"),
        ("[{'x': np.full((2, 4), np.nan, np.float32)}]", "8 of 8 elements of x that are NaN"),
    ],
)
def test_calibration_that_cannot_be_used(write_model: WriteModel, returned: str, message: str) -> None:
    """Empty, misshapen, misnamed or NaN: the error names the hook's field and what it gave."""
    data = f"import numpy as np\ndef given(): return {returned}\n"
    spec = write_model(TEXT + "optimize: {calibration: data:given}\n", network__py="", data__py=data)
    with pytest.raises(BuildError) as caught:
        read_calibration(spec, SIGNATURE)
    assert "optimize.calibration" in caught.value.where
    assert message in caught.value.found


def test_missing_calibration_says_what_to_write(write_model: WriteModel) -> None:
    """A variant that needs data names the key to add."""
    spec = write_model(TEXT, network__py="")
    with pytest.raises(BuildError) as caught:
        read_calibration(spec, SIGNATURE)
    assert "calibration: data:calibration_batches" in caught.value.todo


def test_training_data_have_a_target_for_each_item(write_model: WriteModel) -> None:
    """Pairs come back checked; another number of targets is refused."""
    data = (
        "import numpy as np\n"
        "def given(): return [({'x': np.ones((2, 4), np.float32)}, np.array([0, 1]))]\n"
        "def short(): return [({'x': np.ones((2, 4), np.float32)}, np.array([0]))]\n"
    )
    text = TEXT + "optimize: {training: data:given}\n"
    spec = write_model(text, network__py="", data__py=data)
    ((batch, targets),) = hook_training(spec, SIGNATURE)
    assert batch["x"].shape == (2, 4)
    assert np.array_equal(targets, [0, 1])
    spec = write_model(text.replace("given", "short"), network__py="", data__py=data)
    with pytest.raises(BuildError, match="2 items and 1 targets"):
        hook_training(spec, SIGNATURE)


def test_without_a_batch_axis_the_sample_budget_counts_batches(write_model: WriteModel) -> None:
    """The first axis is the network's own there: it is not cut."""
    data = "import numpy as np\ndef given(): return [{'x': np.ones(4, np.float32)}] * 3\n"
    text = TEXT + "quality: {samples: data:given, max_samples: 2}\n"
    spec = write_model(text, network__py="", data__py=data)
    given = batches(spec, Signature(SIGNATURE.inputs, (), batched=False))
    assert [batch["x"].shape for batch in given] == [(4,), (4,)]


@pytest.mark.parametrize("value", ["np.float32(5)", "np.array(5, np.float32)", "np.array([5], np.float32)"])
def test_a_sample_of_a_scalar_has_no_axis_or_one(write_model: WriteModel, value: str) -> None:
    """Callers send [1], the network gets its scalar; more values are refused."""
    signature = Signature((TensorInfo("x", "FP32", ()),), (), batched=False)
    text = TEXT + "serving: {max_batch_size: 0}\nquality: {samples: data:given}\n"
    for count in (1, 2):
        array = value if count == 1 else "np.ones(2, np.float32)"
        data = f"import numpy as np\ndef given(): return {{'x': {array}}}\n"
        spec = write_model(text, network__py="", data__py=data)
        if count == 1:
            [batch] = batches(spec, signature)
            assert (batch["x"].shape, float(batch["x"])) == ((), 5.0)
        else:
            with pytest.raises(BuildError, match="2"):
                batches(spec, signature)
