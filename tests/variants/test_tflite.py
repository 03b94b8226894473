"""Edge files, run by the LiteRT interpreter; skipped where the extra `tflite` is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import RenderError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import Result, evaluate
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.render import plan_models

pytestmark = pytest.mark.skipif(find_spec("litert_torch") is None, reason="the extra `tflite` is not installed")

TEXT = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: SHAPE}}
  outputs: {y: {dtype: FP32, shape: [4]}}
  free_axes: {width: {min: 8, max: 32}}
quality: {samples: data:calibration}
optimize: {calibration: data:calibration}
"""
DATA = """
import numpy as np
def calibration():
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal((8, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
"""
CONVOLUTION = """
import torch
def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(8, 4),
    )
"""
SINE = """
import torch
class Sine(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)
def build():
    return Sine()
"""


def spec_of(write_model: WriteModel, network: str = CONVOLUTION, shape: str = "[3, 8, 8]") -> Spec:
    """A network with real samples that are its calibration data too."""
    sizes = shape.strip("[]")
    data = DATA.replace("(8, 3, 8, 8)", f"(8, {sizes})")
    return write_model(TEXT.replace("SHAPE", shape), network__py=network, data__py=data)


def built(spec: Spec, root: Path, variant: str) -> Result:
    """What building one variant gave."""
    (result,) = evaluate(spec, [variant], BuildCache(root / "cache"))
    return result


def test_an_edge_file_gives_what_the_module_gives(
    write_model: WriteModel, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Item by item under the spec's names, within the tolerance, and the converter says nothing."""
    result = built(spec_of(write_model), root, "tflite")
    assert result.problem is None
    assert result.passed
    assert result.artifact is not None
    assert result.artifact.quality is not None
    assert result.artifact.quality.max_difference < 1e-4
    assert "Triton does not serve it" in result.artifact.notes[0]
    runner = RUNTIMES["litert"](result.artifact.folder, 1, "here")
    outputs = runner.run({"x": np.zeros((5, 3, 8, 8), np.float32)})
    assert {name: array.shape for name, array in outputs.items()} == {"y": (5, 4)}
    assert capfd.readouterr() == ("", "")


def test_int8_is_smaller_close_and_takes_floats(write_model: WriteModel, root: Path) -> None:
    """INT8 inside, FP32 at both ends."""
    spec = spec_of(write_model)
    small, plain = (built(spec, root, name) for name in ("tflite-int8", "tflite"))
    assert small.problem is None
    assert small.artifact is not None
    assert plain.artifact is not None
    assert small.artifact.quality is not None
    assert small.artifact.quality.value > 0.999
    runner = RUNTIMES["litert"](small.artifact.folder, 1, "here")
    assert runner.run({"x": np.zeros((1, 3, 8, 8), np.float32)})["y"].dtype == np.float32


def test_a_network_without_products_cannot_be_int8(write_model: WriteModel, root: Path) -> None:
    """The quantizer leaves it as it is, which is said."""
    problem = built(spec_of(write_model, SINE, "[4]"), root, "tflite-int8").problem
    assert problem is not None
    assert "no operator" in problem.found


def test_a_free_axis_is_refused(write_model: WriteModel, root: Path) -> None:
    """An edge file has one shape; the message names the input."""
    spec = write_model(
        TEXT.replace("SHAPE", "[3, 8, width]").replace("quality: {samples: data:calibration}\n", ""),
        network__py=CONVOLUTION,
        data__py=DATA,
    )
    problem = built(spec, root, "tflite").problem
    assert problem is not None
    assert problem.where.endswith("network.inputs.x")
    assert "width" in problem.found


def test_an_edge_file_is_never_served(write_model: WriteModel, root: Path) -> None:
    """Rendering it is refused with the file that it consists of."""
    spec = spec_of(write_model)
    artifact = built(spec, root, "tflite").artifact
    assert artifact is not None
    with pytest.raises(RenderError, match=r"tflite gives model\.tflite"):
        plan_models(spec, artifact, "cpu", 2)
