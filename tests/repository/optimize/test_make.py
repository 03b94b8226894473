"""From a spec to an artifact: real exports of small networks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tritonkit.errors import BuildError, GateError, SpecError, TritonkitError
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.export.torch_onnx import hold_to_free_inputs
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import build, evaluate, plan
from tritonkit.repository.optimize.results import choose, wanted_variants

TORCH = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
"""
LINEAR = """
import torch
def build():
    return torch.nn.Linear(4, 2)
"""


def module(body: str) -> str:
    """A network.py whose forward has the given body."""
    head = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        "
    return f"{head}{body}\ndef build():\n    return Net()\n"


@pytest.fixture
def cache(root: Path) -> BuildCache:
    """An empty cache in the test's project."""
    return BuildCache(root / "cache")


def built(spec: Spec, cache: BuildCache) -> Artifact:
    """Plan and build in one."""
    return build(plan(spec, cache), cache)


def refused(spec: Spec, cache: BuildCache, kind: type[TritonkitError]) -> TritonkitError:
    """The error of a build that must fail, leaving nothing behind."""
    with pytest.raises(kind) as caught:
        built(spec, cache)
    assert type(caught.value) is kind
    assert plan(spec, cache).cached is None, "a refused build must not be cached"
    assert not list(cache.folder.glob("*/.building-*")), "a refused build leaves nothing behind"
    return caught.value


def kept_out(spec: Spec, cache: BuildCache) -> GateError:
    """The error of a variant that was built and measured, and may not be published."""
    results = evaluate(spec, wanted_variants(spec, ()), cache)
    with pytest.raises(GateError) as caught:
        choose(spec, results)
    assert plan(spec, cache).cached is not None, "what the gate keeps out need not be built again"
    return caught.value


def onnx_file(
    nodes: list[onnx.NodeProto], out_shape: list[int | str], in_shape: list[int | str] | None = None
) -> bytes:
    """A small ONNX file from x: FP32 [batch, 4] to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, in_shape or ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


RELU = [helper.make_node("Relu", ["x"], ["y"])]
FILE = "name: net\nnetwork: {onnx: m.onnx}\n"
"""A spec for what has nothing to do with PyTorch: exporting takes longest."""


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


def test_two_models_may_both_have_a_network_py(write_model: WriteModel, cache: BuildCache) -> None:
    """Files of one folder are not found from another."""
    first = built(write_model(TORCH, network__py=LINEAR), cache)
    other = write_model(
        TORCH.replace("name: net", "name: other").replace("[2]", "[4]"), "other", network__py=module("return x + 1")
    )
    second = built(other, cache)
    assert first.signature.outputs[0].shape == (2,)
    assert second.signature.outputs[0].shape == (4,)


def test_training_is_repeatable(write_model: WriteModel, root: Path) -> None:
    """The build seeds every generator: two trainings give the same file."""
    code = "import torch\ndef train(net):\n    with torch.no_grad():\n        net.weight.add_(torch.randn(2, 4))\n"
    text = TORCH.replace("build\n", "build\n  train: train:train\n", 1)
    files = [
        built(write_model(text, network__py=LINEAR, train__py=code), BuildCache(root / name)).files
        for name in ("one", "two")
    ]
    assert files[0] == files[1]


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
        found = onnx_outputs(artifact, np.ones((3, 4), np.float32))
        np.testing.assert_allclose(found, 4.0)


def onnx_outputs(artifact: Artifact, x: np.ndarray) -> np.ndarray:
    """Run an artifact on x: float32 [batch, 4]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(artifact.folder / "model.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_a_checkpoint_with_code_in_it_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """A pickle that would run something on loading does not get to."""
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (print, ("ran",))

    text = TORCH.replace("build\n", "build\n  weights: w.pt\n", 1)
    spec = write_model(text, network__py=LINEAR, w__pt=pickle.dumps(Evil()))
    assert "cannot be read" in refused(spec, cache, BuildError).found


def test_weights_of_other_names_are_refused(write_model: WriteModel, cache: BuildCache, tmp_path: Path) -> None:
    """Missing and unknown names are listed."""
    import torch
    from safetensors.torch import save_file

    save_file({"wrong": torch.ones(1)}, tmp_path / "w.safetensors")
    text = TORCH.replace("build\n", "build\n  weights: w.safetensors\n", 1)
    spec = write_model(text, network__py=LINEAR, w__safetensors=(tmp_path / "w.safetensors").read_bytes())
    assert "unknown: wrong" in refused(spec, cache, BuildError).details


def test_an_output_shape_that_depends_on_data_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """A PyTorch network with nonzero in it cannot be batched."""
    spec = write_model(TORCH, network__py=module("return x[x > 0]"))
    assert "depends on the data" in refused(spec, cache, BuildError).found


def test_control_flow_on_values_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """What torch.export cannot trace ends in its own words, not in a traceback."""
    spec = write_model(TORCH, network__py=module("return x if x.sum() > 0 else -x"))
    error = refused(spec, cache, BuildError)
    assert "network.torch" in error.where
    assert "control flow on values: `return x if x.sum() > 0 else -x` (network.py, line 4)" in error.found
    assert "torch.where" in error.todo


def test_a_failing_hook_shows_its_last_calls(write_model: WriteModel, cache: BuildCache) -> None:
    """An exception in a person's code names the hook, the exception and the line."""
    spec = write_model(TORCH, network__py="def build():\n    raise RuntimeError('no such thing')\n")
    error = refused(spec, cache, BuildError)
    assert "RuntimeError: no such thing" in error.found
    assert "network.py" in error.details


def test_a_missing_function_is_the_specs_mistake(write_model: WriteModel, cache: BuildCache) -> None:
    """A hook that names nothing is a mistake in the spec."""
    error = refused(write_model(TORCH, network__py="x = 1"), cache, SpecError)
    assert "no function 'build'" in error.found


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
    artifact = built(write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=content), cache)
    assert (artifact.folder / "model.onnx").read_bytes() == content
    assert artifact.signature.inputs[0].shape == (4,)


def test_a_truncated_onnx_file_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """A file that stops in the middle is not whole."""
    content = onnx_file(RELU, ["batch", 4])
    spec = write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=content[: len(content) // 2])
    assert "not a whole ONNX file" in refused(spec, cache, BuildError).found


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("{z: {dtype: FP32, shape: [4]}}", "['x']"),
        ("{x: {dtype: INT64, shape: [4]}}", "FP32, as m.onnx has it"),
        ("{x: {dtype: FP32, shape: [5]}}", "[4], as m.onnx has it"),
    ],
)
def test_inputs_that_differ_from_the_file_are_the_specs_mistake(
    write_model: WriteModel, cache: BuildCache, inputs: str, said: str
) -> None:
    """Names, dtypes and shapes of the spec are held against the file."""
    text = f"name: net\nnetwork: {{onnx: m.onnx, inputs: {inputs}}}\n"
    spec = write_model(text, m__onnx=onnx_file(RELU, ["batch", 4]))
    assert said in refused(spec, cache, SpecError).wanted


def test_an_onnx_file_without_a_free_batch_axis_says_what_to_do(write_model: WriteModel, cache: BuildCache) -> None:
    """It is served without a batch axis, as with max_batch_size 0, and refused where the spec demands batches."""
    content = onnx_file(RELU, [1, 4], [1, 4])
    text = "name: net\nnetwork: {onnx: m.onnx}\n"
    for serving in ("", "serving: {max_batch_size: 0}"):
        artifact = built(write_model(text + serving, m__onnx=content), cache)
        assert artifact.signature.inputs[0].shape == (1, 4)
    demanded = write_model(text + "serving: {max_batch_size: 8}", m__onnx=content)
    assert "max_batch_size: 0" in refused(demanded, cache, BuildError).todo


def test_an_onnx_file_whose_output_shape_depends_on_data_is_not_batched(
    write_model: WriteModel, cache: BuildCache
) -> None:
    """Each request has a shape of its own; where the spec demands batches, that is refused."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=[1, 0]),
        helper.make_node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
    ]
    text, content = "name: net\nnetwork: {onnx: m.onnx}\n", onnx_file(nodes, ["found", 2])
    artifact = built(write_model(text, m__onnx=content), cache)
    assert not artifact.signature.batched
    assert artifact.independence is not None
    assert "depends on the data" in artifact.independence.seen
    spec = write_model(text + "serving: {max_batch_size: 8}", m__onnx=content)
    assert "depends on the data" in refused(spec, cache, BuildError).found


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
    text = "name: net\nnetwork: {onnx: m.onnx}\n"
    for width in range(3, 9):
        shape: list[int | str] = ["batch", width]
        built(write_model(text, m__onnx=onnx_file(RELU, shape, shape)), cache)
    assert len(list((cache.folder / "net").iterdir())) == 3


PYTHON = """
name: net
network:
  python: s.py
  inputs: {x: {dtype: FP32, shape: [1]}}
  outputs: {y: {dtype: FP32, shape: [1]}}
"""
SAMPLES = TORCH + "quality: {samples: data:samples}\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("return [{'z': np.zeros((2, 4), 'f')}]", "has the names ['z']"),
        ("return [{'x': np.zeros((2, 4))}]", "float64 [2, 4] for x"),
        ("return [{'x': np.zeros((2, 5), 'f')}]", "float32 [2, 5] for x"),
        ("return [{'x': [[1, 2, 3, 4]]}]", "a list for x"),
        ("return [{'x': np.zeros((0, 4), 'f')}]", "inputs of [0] items"),
        ("return [{}]", "has the names []"),
        ("yield 1", "returned generator"),
    ],
)
def test_samples_that_do_not_fit_are_refused(write_model: WriteModel, cache: BuildCache, code: str, said: str) -> None:
    """Names, dtypes and shapes of a person's samples are held against the network's inputs."""
    spec = write_model(SAMPLES, network__py=LINEAR, data__py=f"import numpy as np\ndef samples(): {code}\n")
    error = refused(spec, cache, BuildError)
    assert said in error.found
    assert error.where.endswith("quality.samples")


def test_samples_may_be_views(write_model: WriteModel, cache: BuildCache) -> None:
    """Negative strides and read-only memory are copied before PyTorch sees them."""
    code = "import numpy as np\ndef samples(): return [{'x': np.zeros((4, 3), 'f').T[:, ::-1]}]\n"
    assert built(write_model(SAMPLES, network__py=LINEAR, data__py=code), cache).quality is not None


def test_a_hook_may_change_sys_path(write_model: WriteModel, cache: BuildCache) -> None:
    """What a hook does to the search path is undone after it."""
    import sys

    before = list(sys.path)
    code = "import sys\nimport numpy as np\nsys.path.clear()\ndef samples(): return [{'x': np.zeros((2, 4), 'f')}]\n"
    built(write_model(SAMPLES, network__py=LINEAR, data__py=code), cache)
    assert sys.path == before


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "None"])
def test_a_metric_that_is_no_finite_number_is_refused(write_model: WriteModel, cache: BuildCache, value: str) -> None:
    """NaN is below no bar: it must not slip through the gate."""
    text = FILE + "quality: {metric: data:score, at_least: 0.9}\n"
    code = f"def score(outputs, reference): return {value}"
    spec = write_model(text, m__onnx=onnx_file(RELU, ["batch", 4]), data__py=code)
    assert refused(spec, cache, BuildError).wanted.startswith("a finite number")


def test_a_network_that_gives_nan_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """Two NaN compare as nothing, so they prove nothing."""
    spec = write_model(TORCH, network__py=module("return x[:, :2] * float('nan')"))
    assert "gives NaN in 2 of 2" in refused(spec, cache, BuildError).found


def test_equal_infinities_agree(write_model: WriteModel, cache: BuildCache) -> None:
    """A masked output may hold infinities, and the figures stay finite."""
    quality = built(write_model(TORCH, network__py=module("return x[:, :2] - float('inf')")), cache).quality
    assert quality is not None
    assert (quality.value, quality.max_difference) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return x, x", "1 names for 2 outputs"),
        ("return x, [x]", "1 names for 2 outputs"),
        ("return None, 1", "no tensor; output 0 is None, and left out; output 1 is of the type int"),
    ],
)
def test_outputs_that_are_no_tensors_are_told_before_the_export(
    write_model: WriteModel, cache: BuildCache, body: str, said: str
) -> None:
    """The module's own mistake is named, not the exporter's words for it."""
    assert said in refused(write_model(TORCH, network__py=module(body)), cache, BuildError).found


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


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return (x + torch.randn_like(x))[:, :2]", "the network answers"),
        ("self.n = getattr(self, 'n', 0) + 1; return x[:, :2] + self.n", "the PyTorch module answers"),
    ],
)
def test_a_network_that_draws_or_counts_is_named(
    write_model: WriteModel, cache: BuildCache, body: str, said: str
) -> None:
    """It is neither a layer in training mode nor a tolerance too small."""
    found = refused(write_model(TORCH, network__py=module(body)), cache, BuildError).found
    assert found == f"{said} the same input differently each time"


@pytest.mark.parametrize("size", [1, 2])
def test_a_small_max_batch_size_exports(write_model: WriteModel, cache: BuildCache, size: int) -> None:
    """The file does not depend on max_batch_size, not even where the example is larger."""
    spec = write_model(TORCH + f"serving: {{max_batch_size: {size}}}\n", network__py=LINEAR)
    assert built(spec, cache).signature.batched


@pytest.mark.parametrize("state", ["tensor", "list", "empty"])
def test_a_checkpoint_without_names_is_refused(write_model: WriteModel, cache: BuildCache, state: str) -> None:
    """A tensor, a list or an empty file is no state_dict."""
    import io

    import torch

    file = io.BytesIO()
    if state != "empty":
        torch.save(torch.ones(3) if state == "tensor" else [1, 2], file)
    text = TORCH.replace("build\n", "build\n  weights: w.pt\n", 1)
    spec = write_model(text, network__py=LINEAR, w__pt=file.getvalue())
    assert "w.pt" in refused(spec, cache, BuildError).found


def test_a_shape_beyond_memory_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """No data of two thousand million numbers is made up."""
    spec = write_model(TORCH.replace("[4]", "[2000000000]"), network__py=module("return x[:, :2]"))
    assert "at most" in refused(spec, cache, BuildError).wanted


def test_a_spec_names_and_narrows_the_axes_of_an_onnx_file(write_model: WriteModel, cache: BuildCache) -> None:
    """free_axes of the spec describe the file's axis whatever the file calls it; a fixed size is kept."""
    content = onnx_file(RELU, ["batch", "seq"], ["batch", "seq"])
    fixed = "name: net\nnetwork:\n  onnx: m.onnx\n  inputs: {x: {dtype: FP32, shape: [8]}}\n"
    text = fixed.replace("8", "length") + "  free_axes: {length: {max: 9}}\n"
    assert built(write_model(text, m__onnx=content), cache).signature.inputs[0].axes == ("length",)
    assert built(write_model(fixed, m__onnx=content), cache).signature.inputs[0].shape == (8,)


def test_files_of_one_name_are_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """All files of a python model lie in one folder: none may hide another, or the manifest."""
    text = PYTHON.replace("s.py\n", "s.py\n  files: [manifest.json]\n")
    spec = write_model(text, s__py="", manifest__json="{}")
    assert "manifest.json" in refused(spec, cache, SpecError).found


def test_a_python_model_that_cannot_be_compiled_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """A syntax error is found here, not by a server that does not start."""
    assert "SyntaxError" in refused(write_model(PYTHON, s__py="def ("), cache, BuildError).found


def test_what_a_killed_build_left_goes_with_the_next(write_model: WriteModel, cache: BuildCache) -> None:
    """Half a build is swept away, not kept for ever."""
    left = cache.folder / "net" / ".building-old"
    left.mkdir(parents=True)
    built(write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=onnx_file(RELU, ["batch", 4])), cache)
    assert not left.exists()


def test_prints_of_a_hook_do_not_reach_standard_output(
    write_model: WriteModel, cache: BuildCache, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output belongs to the command: --json must stay JSON."""
    built(write_model(TORCH, network__py=LINEAR + "print('loud')\n"), cache)
    seen = capsys.readouterr()
    assert (seen.out, "loud" in seen.err) == ("", True)


def padded_file(nodes: list[onnx.NodeProto], out_shape: list[int | str]) -> bytes:
    """A network of x [batch, length, 4] and mask [batch, length]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 4]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "length"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
        [helper.make_tensor(n, TensorProto.INT64, [1], [i]) for n, i in (("axis", 1), ("last", 2))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


SHOWN = [
    helper.make_node("Unsqueeze", ["mask", "last"], ["shown"]),
    helper.make_node("Mul", ["x", "shown"], ["seen"]),
    helper.make_node("ReduceSum", ["seen", "axis"], ["sum"], keepdims=0),
]
MASKED_MEAN = [
    *SHOWN,
    helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=1),
    helper.make_node("Div", ["sum", "count"], ["y"]),
]
PLAIN_MEAN = [*SHOWN, helper.make_node("ReduceMean", ["x", "axis"], ["y"], keepdims=0)]
PADDED = "name: net\nnetwork: {onnx: m.onnx, free_axes: {length: {max: 32, pad: {x: 0, mask: 0}}}}\n"


def test_filling_up_is_proven_where_a_mask_hides_it(write_model: WriteModel, cache: BuildCache) -> None:
    """The verdict on items says so too; other values that fill up are proven again."""
    data = padded_file(MASKED_MEAN, ["batch", 4])
    spec = write_model(PADDED, m__onnx=data)
    found = built(spec, cache).independence
    assert found is not None
    assert found.state == "proven"
    assert "filled up along length from 2 to 4" in found.seen
    other = write_model(PADDED.replace("mask: 0", "mask: 1"), m__onnx=data)
    assert plan(other, cache).cached is None
    assert "free_axes.length.pad" in refused(other, cache, BuildError).where


def test_filling_up_that_changes_answers_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """The key, what was seen, and what helps are named; a declaration overrides it, and is recorded."""
    data = padded_file(PLAIN_MEAN, ["batch", 4])
    error = refused(write_model(PADDED, m__onnx=data), cache, BuildError)
    assert error.where.endswith("net/model.yaml network.free_axes.length.pad")
    assert error.found.startswith(
        "filling up changes answers (variant onnx-fp32): output y of an item of length 2 differs"
    )
    assert "leave pad out" in error.todo
    declared = write_model(PADDED + "serving: {independent_items: true}\n", m__onnx=data)
    found = built(declared, cache).independence
    assert found is not None
    assert found.state == "declared"
    built(write_model(PADDED + "serving: {max_batch_size: 0}\n", m__onnx=data), cache)
