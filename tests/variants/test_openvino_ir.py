"""A small trained-like network in OpenVINO's three forms: files, sizes, closeness, notes, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.make import build, job_of, plan
from tritonkit.repository.optimize.runtimes.openvino_cpu import open_runner
from tritonkit.repository.optimize.variants import openvino_int8
from tritonkit.repository.optimize.variants.openvino_ir import make_bf16, make_fp32, make_int8
from tritonkit.repository.optimize.variants.openvino_layers import has_attention, layers_in_float, split_constants

SPEC = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [3, 16, 16]}}
  outputs: {y: {dtype: FP32, shape: [5]}}
optimize: {calibration: data:calibration}
quality: {samples: data:held_out}
"""
DATA = """
import numpy as np
def batches(seed, count):
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal((8, 3, 16, 16)).astype(np.float32)} for _ in range(count)]
def calibration():
    return batches(0, 3)
def held_out():
    return batches(1, 2)
"""
CONVOLUTIONS = """
import torch
from torch import nn
def build():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 5))
"""


def make_job(write_model: WriteModel, folder: Path, network: str = CONVOLUTIONS, **texts: str) -> Job:
    """A job whose FP32 file is exported when it is asked for."""
    spec = write_model(texts.get("spec", SPEC), network__py=network, data__py=texts.get("data", DATA))
    return job_of(spec, BuildCache(folder / "cache"), threads=2)


def size(folder: Path) -> int:
    """Bytes of the two files, and there are no others."""
    assert sorted(file.name for file in folder.iterdir()) == ["model.bin", "model.xml"]
    return sum(file.stat().st_size for file in folder.iterdir())


def made(make: Any, job: Job, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The variant's folder, and its notes."""
    folder.mkdir()
    return folder, make(job, folder)


def weights_of(folder: Path) -> dict[str, int]:
    """Bytes of the file's constants by element type."""
    sizes: dict[str, int] = {}
    for node in openvino.Core().read_model(folder / "model.xml").get_ordered_ops():
        if node.get_type_name() == "Constant":
            kind = node.get_element_type().get_type_name()
            sizes[kind] = sizes.get(kind, 0) + node.get_byte_size()
    return sizes


def test_three_forms_of_one_network(write_model: WriteModel, tmp_path: Path) -> None:
    """FP32, half and a quarter of the bytes; the less, the farther from FP32, but never far."""
    job = make_job(write_model, tmp_path)
    closeness, bytes_of = {}, {}
    for name, make in (("fp32", make_fp32), ("bf16", make_bf16), ("int8", make_int8)):
        folder, notes = made(make, job, tmp_path / name)
        closeness[name] = job.closeness(open_runner(folder, 2, "test").run)
        bytes_of[name] = size(folder)
        assert all(notes)
    plain = weights_of(tmp_path / "fp32")["f32"]
    assert bytes_of["fp32"] > plain > 340_000
    assert weights_of(tmp_path / "bf16")["bf16"] * 2 > 0.99 * plain
    assert weights_of(tmp_path / "int8")["i8"] * 4 > 0.99 * plain
    assert bytes_of["bf16"] < 0.6 * bytes_of["fp32"]
    assert closeness["fp32"] > 0.9999999
    assert closeness["bf16"] > 0.999
    assert closeness["int8"] > 0.99


def test_files_say_what_they_are_computed_in(write_model: WriteModel, tmp_path: Path) -> None:
    """The entry is read back by another OpenVINO: FP32 stays FP32 where the processor has bfloat16."""
    job = make_job(write_model, tmp_path)
    for name, make, precision in (("a", make_fp32, "f32"), ("b", make_bf16, "bf16")):
        folder, _ = made(make, job, tmp_path / name)
        model = openvino.Core().read_model(folder / "model.xml")
        entry = ["runtime_options", "INFERENCE_PRECISION_HINT"]
        assert model.get_rt_info(entry).astype(str) == precision
        tensors = [*model.inputs, *model.outputs]
        assert [(t.get_any_name(), t.get_partial_shape().to_string()) for t in tensors] == [
            ("x", "[?,3,16,16]"),
            ("y", "[?,5]"),
        ]
        assert {t.get_element_type() for t in tensors} == {openvino.Type.f32}


def test_int8_is_built_measured_and_kept(write_model: WriteModel, tmp_path: Path) -> None:
    """Through the build itself: measured by OpenVINO against the reference, notes in the artifact."""
    spec = write_model(SPEC, network__py=CONVOLUTIONS, data__py=DATA)
    cache = BuildCache(tmp_path / "cache")
    job = job_of(spec, cache, "openvino-int8", threads=2)
    artifact = build(plan(spec, cache, variant="openvino-int8"), cache, job)
    assert isinstance(artifact, Artifact)
    assert set(artifact.files) == {"model.xml", "model.bin"}
    assert artifact.quality is not None
    assert artifact.quality.samples == 16
    assert artifact.quality.value > 0.99
    assert any("R2 to FP32" in note for note in artifact.notes)


def test_bytes_in_and_out_keep_their_dtypes(write_model: WriteModel, tmp_path: Path) -> None:
    """A network that takes bytes takes them in each form."""
    network = (
        CONVOLUTIONS.replace("    return nn.Sequential(", "    return Scaled(")
        + "class Scaled(nn.Sequential):\n    def forward(self, x):\n        return super().forward(x.float() / 255)\n"
    )
    data = DATA.replace(
        "random.standard_normal((8, 3, 16, 16)).astype(np.float32)", "random.integers(0, 256, (8, 3, 16, 16), np.uint8)"
    )
    job = make_job(write_model, tmp_path, network, spec=SPEC.replace("x: {dtype: FP32", "x: {dtype: UINT8"), data=data)
    for name, make in (("bf16", make_bf16), ("int8", make_int8)):
        folder, _ = made(make, job, tmp_path / name)
        assert job.closeness(open_runner(folder, 2, "test").run) > 0.99


ATTENTION = """
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(200, 64)
        self.mix = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)
    def forward(self, x):
        h = self.table(x)
        q, k, v = self.mix(h).chunk(3, dim=-1)
        p = torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1)
        return self.out(p @ v + h)
def build():
    torch.manual_seed(1)
    return Attention()
"""
TOKENS = """
import numpy as np
def calibration():
    random = np.random.default_rng(0)
    return [{"x": random.integers(0, 200, (4, n))} for n in (5, 9, 16)]
held_out = calibration
"""
LENGTHS = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: INT64, shape: [length]}}
  outputs: {y: {dtype: FP32, shape: [length, 64]}}
  free_axes: {length: {min: 2, max: 64}}
optimize: {calibration: data:calibration}
"""


def test_attention_with_its_table(write_model: WriteModel, tmp_path: Path) -> None:
    """The embedding table is in INT8 as well, and every length is answered."""
    job = make_job(write_model, tmp_path, ATTENTION, spec=LENGTHS, data=TOKENS)
    folder, notes = made(make_int8, job, tmp_path / "int8")
    model = openvino.Core().read_model(folder / "model.xml")
    assert has_attention(model)
    assert "smoothing" in notes[0]
    sizes = weights_of(folder)
    assert sizes["i8"] > 0.99 * (200 * 64 + 64 * 192 + 64 * 64)
    assert sizes["f32"] < 0.1 * sizes["i8"] * 4
    runner = open_runner(folder, 2, "test")
    assert job.closeness(runner.run) > 0.98
    for length in (2, 33, 64):
        assert runner.run({"x": np.zeros((1, length), np.int64)})["y"].shape == (1, length, 64)


FRAGILE = """
import torch
from torch import nn
class Fragile(nn.Module):
    # One layer whose outputs differ by a factor of a hundred million: no 8-bit range holds both sides.
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.spread = nn.Conv2d(16, 16, 1, bias=False)
        self.gather = nn.Conv2d(16, 16, 1, bias=False)
        self.last = nn.Linear(16, 5)
        with torch.no_grad():
            scales = torch.logspace(-4, 4, 16)
            self.spread.weight.mul_(scales[:, None, None, None])
            self.gather.weight.div_(scales[None, :, None, None])
    def forward(self, x):
        x = torch.relu(self.first(x))
        x = self.gather(torch.relu(self.spread(x)))
        return self.last(x.mean((2, 3)))
def build():
    torch.manual_seed(1)
    return Fragile()
"""


def test_layers_that_lose_too_much_stay_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """A network that no range fits is brought back by accuracy control, and the notes name the layer."""
    job = make_job(write_model, tmp_path, FRAGILE, spec=SPEC.replace("quality: {", "quality: {max_drop: 0.001, "))
    folder, notes = made(make_int8, job, tmp_path / "int8")
    assert job.closeness(open_runner(folder, 2, "test").run) >= 0.999
    assert "accuracy control" in notes[0]
    left, layers = layers_in_float(openvino.Core().read_model(folder / "model.xml"))
    assert 0 < len(left) < layers == 4
    assert f"{len(left)} of 4 layers stayed FP32" in notes[1]
    assert left[0] in notes[1]


def test_network_without_anything_to_quantize(write_model: WriteModel, tmp_path: Path) -> None:
    """There is no weight and no matrix product: the variant is refused."""
    network = "from torch import nn\ndef build():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    job = make_job(write_model, tmp_path, network, spec=SPEC.replace("[5]", "[3]"))
    with pytest.raises(BuildError) as caught:
        made(make_int8, job, tmp_path / "int8")
    assert "no operator to quantize" in caught.value.found


def test_calibration_is_asked_for(write_model: WriteModel, tmp_path: Path) -> None:
    """Without optimize.calibration INT8 is refused, and the others are made."""
    job = make_job(write_model, tmp_path, spec=SPEC.replace("optimize: {calibration: data:calibration}", ""))
    made(make_bf16, job, tmp_path / "bf16")
    with pytest.raises(BuildError) as caught:
        made(make_int8, job, tmp_path / "int8")
    assert caught.value.where.endswith("optimize.calibration")


def test_dtype_that_the_backend_does_not_carry(write_model: WriteModel, tmp_path: Path) -> None:
    """FP64 goes through OpenVINO and not through Triton's backend of it."""
    network = "from torch import nn\ndef build():\n    return nn.Linear(4, 2).double()\n"
    spec = SPEC.replace("FP32", "FP64").replace("[3, 16, 16]", "[4]").replace("[5]", "[2]")
    data = DATA.replace("(8, 3, 16, 16)).astype(np.float32)", "(8, 4))")
    job = make_job(write_model, tmp_path, network, spec=spec, data=data)
    with pytest.raises(BuildError, match="x is FP64, which Triton's openvino backend does not carry"):
        made(make_fp32, job, tmp_path / "fp32")


def test_layers_with_equal_weights_get_constants_of_their_own(tmp_path: Path) -> None:
    """Copies of a layer share constants in an ONNX file; NNCF finds nodes by name and needs one for each."""
    random = np.random.default_rng(0)
    weights = {
        name: onnx.numpy_helper.from_array(random.standard_normal(shape, np.float32), name)
        for name, shape in (("w", (4, 4)), ("b", (4,)), ("b.1", (4,)))
    }
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w", "b"], ["first"]),
        onnx.helper.make_node("Gemm", ["first", "w", "b"], ["second"]),
        onnx.helper.make_node("Add", ["second", "b.1"], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 4]) for n in "xy")
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], list(weights.values()))
    onnx.save(onnx.helper.make_model(graph, ir_version=9), tmp_path / "net.onnx")
    model = openvino.Core().read_model(tmp_path / "net.onnx")
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    batch = random.standard_normal((3, 4), np.float32)
    before = openvino.compile_model(model, "CPU", exact)(batch)[0]
    split_constants(model)
    constants = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
    names = [node.get_friendly_name() for node in constants]
    assert len(set(names)) == len(names)
    assert {"w", "w.1", "b", "b.1", "b.2"} <= set(names)
    assert all(len(node.output(0).get_target_inputs()) == 1 for node in constants)
    assert (openvino.compile_model(model, "CPU", exact)(batch)[0] == before).all()


def test_a_way_that_fails_leaves_the_others(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A way in which NNCF cannot quantize is a note, as long as another way works."""
    ways = openvino_int8._ways

    def last_two(*given: Any) -> Any:
        *_, (control, _), weights = ways(*given)
        yield control, lambda: {}["no such node"]
        yield weights

    monkeypatch.setattr(openvino_int8, "_ways", last_two)
    folder, notes = made(make_int8, make_job(write_model, tmp_path), tmp_path / "int8")
    assert notes[0].startswith("quantized with INT8 weights alone: R2 to FP32 0.99")
    assert notes[-1] == "given up: NNCF cannot quantize it with accuracy control: 'no such node'"
    assert weights_of(folder)["u8"] > 0
