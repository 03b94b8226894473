"""From a spec to an artifact: real exports of small networks, and the cache that keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import FILE, LINEAR, NONZERO, RELU, SAMPLES, TORCH, built, module, onnx_file
from tritonkit.errors import BuildError, GateError
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.export.torch_onnx import hold_to_free_inputs
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import evaluate, fingerprint, plan
from tritonkit.repository.optimize.fingerprint import digest
from tritonkit.repository.optimize.results import choose, wanted_variants


def kept_out(spec: Spec, cache: BuildCache) -> GateError:
    """The error of a variant that was built and measured, and may not be published."""
    results = evaluate(spec, wanted_variants(spec, ()), cache)
    with pytest.raises(GateError) as caught:
        choose(spec, results)
    assert plan(spec, cache).cached is not None, "what the gate keeps out need not be built again"
    return caught.value


def test_a_torch_network_becomes_a_checked_onnx_file(write_model: WriteModel, cache: BuildCache) -> None:
    """Names and shapes are the spec's, the batch is free, and the difference to PyTorch is small."""
    artifact = built(write_model(TORCH, network__py=LINEAR), cache)
    assert [t.name for t in artifact.signature.inputs] == ["x"]
    assert artifact.signature.outputs[0].shape == (2,)
    assert artifact.signature.batched
    assert artifact.quality is not None
    assert artifact.quality.max_difference < 1e-5
    model = onnx.load(artifact.folder / "model.onnx")
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param


def test_an_unchanged_spec_comes_from_the_cache(write_model: WriteModel, cache: BuildCache) -> None:
    """The second build finds the first one's artifact, equal in every fact."""
    spec = write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4]))
    first = built(spec, cache)
    assert plan(spec, cache).cached == first
    assert plan(spec, cache, force=True).cached is None


@pytest.mark.parametrize("what", ["code", "tolerance"])
def test_what_goes_in_changes_the_hash(write_model: WriteModel, cache: BuildCache, what: str) -> None:
    """Code of the folder and the spec's network and quality count."""
    before = plan(write_model(TORCH, network__py=LINEAR), cache).source_hash
    text = TORCH + ("quality: {tolerance: {absolute: 0.1}}" if what == "tolerance" else "")
    code = LINEAR + ("\n# changed" if what == "code" else "")
    assert plan(write_model(text, network__py=code), cache).source_hash != before


@pytest.mark.parametrize(("module", "counts"), [("quality.py", True), ("cuda_options.py", False), ("gpu.py", False)])
def test_code_that_makes_no_variant_does_not_build_again(
    write_model: WriteModel, cache: BuildCache, monkeypatch: pytest.MonkeyPatch, module: str, counts: bool
) -> None:
    """A change of the modules that judge on a GPU leaves every variant as it is; what all variants share counts."""
    spec = write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4]))
    before = plan(spec, cache).source_hash
    monkeypatch.setattr(fingerprint, "digest", lambda file: "changed" if file.name == module else digest(file))
    assert (plan(spec, cache).source_hash != before) is counts


def test_serving_alone_does_not_build_again(write_model: WriteModel, cache: BuildCache) -> None:
    """Another queue delay is another configuration, not another network."""
    before = plan(write_model(TORCH, network__py=LINEAR), cache).source_hash
    text = TORCH + "serving: {dynamic_batching: {max_queue_delay: 3ms}}"
    assert plan(write_model(text, network__py=LINEAR), cache).source_hash == before


def test_a_damaged_artifact_is_built_again(write_model: WriteModel, cache: BuildCache) -> None:
    """A cached file whose hash is wrong is not used."""
    spec = write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4]))
    artifact = built(spec, cache)
    (artifact.folder / "model.onnx").write_bytes(b"damaged")
    assert plan(spec, cache).cached is None
    assert built(spec, cache).files == artifact.files


@pytest.mark.slow
def test_a_free_axis_stays_free(write_model: WriteModel, cache: BuildCache) -> None:
    """An axis named in the spec takes any size in the exported file."""
    text = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [length, 3]}}
  outputs: {y: {dtype: FP32, shape: [length]}}
  free_axes: {length: {min: 2, max: 50}}
"""
    artifact = built(write_model(text, network__py=module("return x.sum(dim=2) * 2")), cache)
    assert artifact.signature.inputs[0].shape == (-1, 3)
    assert artifact.signature.inputs[0].axes == ("length", "")


@pytest.mark.slow
def test_two_models_may_both_have_a_network_py(write_model: WriteModel, cache: BuildCache) -> None:
    """Files of one folder are not found from another."""
    first = built(write_model(TORCH, network__py=LINEAR), cache)
    other = write_model(
        TORCH.replace("name: net", "name: other").replace("[2]", "[4]"), "other", network__py=module("return x + 1")
    )
    second = built(other, cache)
    assert first.signature.outputs[0].shape == (2,)
    assert second.signature.outputs[0].shape == (4,)


@pytest.mark.slow
def test_training_is_repeatable(write_model: WriteModel, root: Path) -> None:
    """The build seeds every generator: two trainings give the same file."""
    code = "import torch\ndef train(net):\n    with torch.no_grad():\n        net.weight.add_(torch.randn(2, 4))\n"
    text = TORCH.replace("build\n", "build\n  train: train:train\n", 1)
    files = [
        built(write_model(text, network__py=LINEAR, train__py=code), BuildCache(root / name)).files
        for name in ("one", "two")
    ]
    assert files[0] == files[1]


@pytest.mark.slow
def test_weights_come_from_safetensors_and_checkpoints(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path
) -> None:
    """Both kinds of file give the module its weights."""
    import torch
    from safetensors.torch import save_file

    state = {"weight": torch.ones(2, 4), "bias": torch.zeros(2)}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": state}, tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        text = TORCH.replace("build\n", f"build\n  weights: {name}\n", 1)
        folder = write_model(TORCH, network__py=LINEAR).folder
        (folder / name).write_bytes((tmp_path / name).read_bytes())
        artifact = built(write_model(text, network__py=LINEAR), cache)
        outputs = onnx_outputs(artifact, np.ones((3, 4), np.float32))
        np.testing.assert_allclose(outputs, 4.0)


def onnx_outputs(artifact: Artifact, x: np.ndarray) -> np.ndarray:
    """Run an artifact on x: float32 [batch, 4]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(artifact.folder / "model.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_a_metric_below_the_bar_is_not_published(write_model: WriteModel, cache: BuildCache) -> None:
    """The gate names the metric, its value and the bar."""
    text = FILE + "quality: {metric: data:score, at_least: 0.9}\n"
    code = "def score(outputs, reference): return 0.5"
    spec = write_model(text, m__onnx=onnx_file(RELU, ["batch", 4]), data__py=code)
    error = kept_out(spec, cache)
    assert "score is 0.5000" in error.found
    assert error.wanted == "at least 0.9"


def test_a_drop_below_the_reference_is_not_published(write_model: WriteModel, cache: BuildCache) -> None:
    """The candidate may lie max_drop below the reference and no more."""
    text = FILE + "quality: {metric: data:score}\n"
    code = "def score(outputs, reference): return 1.0 if outputs is reference else 0.98"
    spec = write_model(text, m__onnx=onnx_file(RELU, ["batch", 4]), data__py=code)
    error = kept_out(spec, cache)
    assert "0.0200 below" in error.found


def test_an_onnx_file_is_taken_as_it_is(write_model: WriteModel, cache: BuildCache) -> None:
    """The artifact holds the same bytes, and its signature is read from them."""
    content = onnx_file(RELU, ["batch", 4])
    artifact = built(write_model(FILE, m__onnx=content), cache)
    assert (artifact.folder / "model.onnx").read_bytes() == content
    assert artifact.signature.inputs[0].shape == (4,)


def test_weights_of_an_onnx_file_are_no_inputs(write_model: WriteModel, cache: BuildCache) -> None:
    """Old exporters list weights among the inputs, also those that nothing reads; engines could not fold them."""
    weights = {"w": np.eye(4, dtype=np.float32), "unread": np.ones(4, np.float32)}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    values = [onnx.helper.make_tensor_value_info(name, 1, array.shape) for name, array in weights.items()]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["batch", 4]) for name in "xy")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "net", [x, *values], [y], tensors)
    old = onnx.helper.make_model(graph, ir_version=4, opset_imports=[onnx.helper.make_opsetid("", 9)])
    artifact = built(write_model(FILE, m__onnx=old.SerializeToString()), cache)
    made = onnx.load(artifact.folder / "model.onnx").graph
    assert [value.name for value in made.input] == ["x"]
    assert [tensor.name for tensor in made.initializer] == ["w"]


def test_an_onnx_file_without_a_free_batch_axis_is_served_without_batches(
    write_model: WriteModel, cache: BuildCache
) -> None:
    """It is served without a batch axis, as with max_batch_size 0."""
    content = onnx_file(RELU, [1, 4], [1, 4])
    text = FILE
    for serving in ("", "serving: {max_batch_size: 0}"):
        artifact = built(write_model(text + serving, m__onnx=content), cache)
        assert artifact.signature.inputs[0].shape == (1, 4)


def test_an_onnx_file_whose_output_shape_depends_on_data_is_not_batched(
    write_model: WriteModel, cache: BuildCache
) -> None:
    """Each request has its own shape."""
    artifact = built(write_model(FILE, m__onnx=onnx_file(NONZERO, ["found", 2])), cache)
    assert not artifact.signature.batched
    assert artifact.independence is not None
    assert "depends on the data" in artifact.independence.seen


def test_a_python_model_is_copied(write_model: WriteModel, cache: BuildCache) -> None:
    """A model.py for the Python backend is described by the spec alone."""
    text = """
name: net
network:
  python: server.py
  files: [table.txt]
  inputs: {x: {dtype: BYTES, shape: [1]}}
  outputs: {y: {dtype: BYTES, shape: [1]}}
"""
    artifact = built(write_model(text, server__py="class TritonPythonModel: ...", table__txt="t"), cache)
    assert set(artifact.files) == {"model.py", "table.txt"}
    assert artifact.quality is None
    assert artifact.signature.inputs[0].dtype == "BYTES"


def test_old_artifacts_are_forgotten(write_model: WriteModel, cache: BuildCache) -> None:
    """The cache keeps a few artifacts of each variant, not all there ever were."""
    text = FILE
    for width in range(3, 9):
        shape: list[int | str] = ["batch", width]
        built(write_model(text, m__onnx=onnx_file(RELU, shape, shape)), cache)
    assert len(list((cache.folder / "net").iterdir())) == 3


def test_samples_may_be_views(write_model: WriteModel, cache: BuildCache) -> None:
    """Negative strides and read-only memory are copied before PyTorch sees them."""
    code = "import numpy as np\ndef samples(): return [{'x': np.zeros((4, 3), 'f').T[:, ::-1]}]\n"
    assert built(write_model(SAMPLES, network__py=LINEAR, data__py=code), cache).quality is not None


def test_a_hook_may_change_sys_path(write_model: WriteModel, cache: BuildCache) -> None:
    """A hook's changes to the search path are undone after it."""
    import sys

    before = list(sys.path)
    code = "import sys\nimport numpy as np\nsys.path.clear()\ndef samples(): return [{'x': np.zeros((2, 4), 'f')}]\n"
    built(write_model(SAMPLES, network__py=LINEAR, data__py=code), cache)
    assert sys.path == before


def test_equal_infinities_agree(write_model: WriteModel, cache: BuildCache) -> None:
    """A masked output may hold infinities, and the figures stay finite."""
    quality = built(write_model(TORCH, network__py=module("return x[:, :2] - float('inf')")), cache).quality
    assert quality is not None
    assert (quality.value, quality.max_difference) == (1.0, 0.0)


def test_an_axis_that_the_exporter_fixed_is_named(write_model: WriteModel) -> None:
    """torch.export takes the time of some LSTMs for a constant, without a word."""
    text = TORCH.replace("shape: [4]", "shape: [time]", 1)
    spec = write_model(
        text.replace("  outputs", "  free_axes: {time: {min: 1, max: 8}}\n  outputs"), network__py=LINEAR
    )
    exported = onnx_ir.from_proto(onnx.load_from_string(onnx_file(RELU, ["batch", 8], ["batch", 8])))
    with pytest.raises(BuildError) as caught:
        hold_to_free_inputs(spec, exported.graph, batched=True)
    assert caught.value.found == "torch.export fixed the free axis time of input x at 8"


def test_a_module_that_changes_its_input_is_compared_on_the_same_input(
    write_model: WriteModel, cache: BuildCache
) -> None:
    """The reference runs on a copy of the samples, and the served file gives what the module gives."""
    code = module("return x.mul_(2)[:, :2]")
    artifact = built(write_model(TORCH, network__py=code), cache)
    assert artifact.quality is not None
    assert artifact.quality.max_difference == 0
    x = np.array([[1, 2, 3, 4]], np.float32)
    assert onnx_outputs(artifact, x).tolist() == [[2, 4]]


@pytest.mark.parametrize("size", [1, 2])
def test_a_small_max_batch_size_exports(write_model: WriteModel, cache: BuildCache, size: int) -> None:
    """The file does not depend on max_batch_size, not even where the example is larger."""
    spec = write_model(TORCH + f"serving: {{max_batch_size: {size}}}\n", network__py=LINEAR)
    assert built(spec, cache).signature.batched


def test_a_spec_names_and_narrows_the_axes_of_an_onnx_file(write_model: WriteModel, cache: BuildCache) -> None:
    """free_axes of the spec describe the file's axis whatever the file calls it; a fixed size is kept."""
    content = onnx_file(RELU, ["batch", "seq"], ["batch", "seq"])
    fixed = "name: net\nnetwork:\n  onnx: m.onnx\n  inputs: {x: {dtype: FP32, shape: [8]}}\n"
    text = fixed.replace("8", "length") + "  free_axes: {length: {max: 9}}\n"
    assert built(write_model(text, m__onnx=content), cache).signature.inputs[0].axes == ("length",)
    assert built(write_model(fixed, m__onnx=content), cache).signature.inputs[0].shape == (8,)


def test_what_a_killed_build_left_goes_with_the_next(write_model: WriteModel, cache: BuildCache) -> None:
    """Half a build is swept away, not kept for ever."""
    left = cache.folder / "net" / ".building-old"
    left.mkdir(parents=True)
    built(write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4])), cache)
    assert not left.exists()


def test_the_workplace_of_a_running_build_stays(write_model: WriteModel, cache: BuildCache) -> None:
    """A search or a report builds while a build does."""
    with cache.workplace("net") as other:
        (other / "model.onnx").write_bytes(b"half of it")
        built(write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4])), cache)
        assert (other / "model.onnx").exists()
    assert not other.exists()


def test_prints_of_a_hook_do_not_reach_standard_output(
    write_model: WriteModel, cache: BuildCache, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output belongs to the command: --json must stay JSON."""
    built(write_model(TORCH, network__py=LINEAR + "print('loud')\n"), cache)
    seen = capsys.readouterr()
    assert (seen.out, "loud" in seen.err) == ("", True)
