"""Variants for target gpu are judged on the GPU, by the library and the options that will serve them."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import WriteModel
from tests.repository.optimize.fake_cuda import GPU, fake_environment, log_of
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.gpu import CudaEnvironment
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.results import Result, choose
from tritonkit.repository.optimize.runtimes.onnxruntime_cuda import CudaRunner
from tritonkit.repository.optimize.timing import find_timing
from tritonkit.repository.render.gpu_network import runs_on_gpu
from tritonkit.resources import shipped_modules

FILE = "name: net\nnetwork: {onnx: net.onnx}\n"
PAIR = ("onnx-fp32", "onnx-tf32")
PAIRED = """<ir_version: 10, opset_import: ["" : 18]>
g (float[b, 1, 3, 3] x) => (float[b, 2, 3, 3] y)
<float[2, 1, 1, 1] w = {1, 1}, float[2] bias = {1, 1}, float step = {0.1}, int8 zero = {0}>
{
    x8 = QuantizeLinear(x, step, zero)
    xd = DequantizeLinear(x8, step, zero)
    w8 = QuantizeLinear(w, step, zero)
    wd = DequantizeLinear(w8, step, zero)
    c = Conv(xd, wd, bias)
    c8 = QuantizeLinear(c, step, zero)
    y = DequantizeLinear(c8, step, zero)
}
"""
"""A convolution with its input, weights and output in QDQ pairs."""
WORD = "serving: {parameters: {session.disable_quant_qdq: '0'}}"


def product() -> bytes:
    """A matrix product: x [batch, 4] -> y [batch, 4]."""
    weights = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


@pytest.fixture
def spec(write_model: WriteModel) -> Spec:
    """A product that needs no training."""
    return write_model(FILE, net__onnx=product())


def judge_in(environment: CudaEnvironment) -> GpuJudge:
    """A judge of networks of any size, which a build would leave to the CPU."""
    return GpuJudge(environment, lambda spec, artifact: True)


def judged(spec: Spec, cache: BuildCache, judge: GpuJudge, *, timed: bool = False) -> tuple[Result, ...]:
    """FP32 and TF32 on the GPU."""
    return evaluate(spec, PAIR, cache, gpu=judge, timed=timed)


def test_tf32_is_a_variant_that_only_a_gpu_can_judge(spec: Spec, cache: BuildCache, tmp_path: Path) -> None:
    """On the CPU it is made and not measured; on the GPU its own rounding counts, and FP32 stays FP32."""
    _, unmeasured = evaluate(spec, PAIR, cache)
    assert not unmeasured.measured
    environment = fake_environment(tmp_path / "venv")
    fp32, tf32 = judged(spec, cache, judge_in(environment))
    assert fp32.passed
    assert tf32.passed
    assert tf32.runtime == "onnxruntime"
    assert fp32.artifact is not None
    assert fp32.artifact.quality is not None
    assert tf32.artifact is not None
    assert tf32.artifact.quality is not None
    assert fp32.artifact.quality.max_difference < 1e-6 < tf32.artifact.quality.max_difference
    assert [entry["open"]["use_tf32"] for entry in log_of(environment) if "open" in entry] == ["0", "1"]  # type: ignore[index]
    [note] = [note for note in tf32.artifact.notes if GPU in note]
    assert "use_tf32 1" in note
    assert tf32.artifact.start == fp32.artifact.start


def test_figures_of_one_gpu_are_kept_for_it(spec: Spec, cache: BuildCache, tmp_path: Path) -> None:
    """A build of the same network there measures nothing; other options, GPUs and versions do."""
    environment = fake_environment(tmp_path / "venv")
    first = judged(spec, cache, judge_in(environment))
    opened = len(log_of(environment))
    again = judged(spec, cache, judge_in(environment))
    assert len(log_of(environment)) == opened
    assert [r.artifact for r in again] == [r.artifact for r in first]
    (info,) = environment.python.parents[1].glob("lib/python3.11/site-packages/*")
    info.rename(info.with_name("onnxruntime_gpu-10.0.0.dist-info"))
    judged(spec, cache, judge_in(environment))
    assert len(log_of(environment)) > opened


def test_figures_are_kept_for_the_entries_of_a_session(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path
) -> None:
    """Another word of the spec about the session is another network on the GPU, though the file is the same."""
    environment = fake_environment(tmp_path / "venv")
    content = onnx.parser.parse_model(PAIRED).SerializeToString()
    for more, entry in (("", "1"), (WORD, "0")):
        judged(write_model(FILE + more, net__onnx=content), cache, judge_in(environment))
        assert [log["floats"] for log in log_of(environment) if "open" in log][-1] == entry


@pytest.mark.slow
def test_speed_is_measured_on_the_gpu_with_graphs(spec: Spec, cache: BuildCache, tmp_path: Path) -> None:
    """Each batch size has a graph, and the CPU's figures of the same artifact stay."""
    environment = fake_environment(tmp_path / "venv")
    on_cpu = evaluate(spec, PAIR, cache, timed=True)[0]
    fp32, tf32 = judged(spec, cache, judge_in(environment), timed=True)
    assert fp32.timing is not None
    assert tf32.timing is not None
    assert fp32.timing.gpu == GPU
    assert fp32.timing.run == tf32.timing.run
    assert any("graph" in entry for entry in log_of(environment))
    assert fp32.artifact is not None
    assert find_timing(fp32.artifact, 1, GPU) == fp32.timing
    assert find_timing(fp32.artifact, 1) == on_cpu.timing


def test_a_network_that_takes_no_graph_is_judged_without(spec: Spec, cache: BuildCache, tmp_path: Path) -> None:
    """Nodes that CUDA lacks run on the CPU, which no graph can hold."""
    environment = fake_environment(tmp_path / "venv", graphs=False)
    (fp32, _) = judged(spec, cache, judge_in(environment), timed=True)
    assert fp32.timing is not None
    assert not any("graph" in entry for entry in log_of(environment))


def test_options_of_the_spec_come_last(write_model: WriteModel, cache: BuildCache, tmp_path: Path) -> None:
    """Names of NVIDIA's backend and of ONNX Runtime's provider are both understood."""
    more = """serving:
  parameters: {cudnn_conv_algo_search: "0", gpu_mem_limit: "1000000"}
  optimization: {gpu_execution_accelerator: [{name: cuda, parameters: {sdpa_kernel: "0"}}]}
"""
    spec = write_model(FILE + more, net__onnx=product())
    environment = fake_environment(tmp_path / "venv")
    judged(spec, cache, judge_in(environment))
    options = log_of(environment)[0]["open"]
    own = {"cudnn_conv_algo_search": "EXHAUSTIVE", "gpu_mem_limit": "1000000", "sdpa_kernel": "0", "use_tf32": "0"}
    assert options == own | {"enable_cuda_graph": "1"}


@pytest.mark.parametrize(("entries", "integers"), [({}, True), ({"session.disable_quant_qdq": "1"}, False)])
def test_the_entry_keeps_biases_out_of_integers(tmp_path: Path, entries: dict[str, str], integers: bool) -> None:
    """ONNX Runtime rounds the bias of a convolution between two pairs, unless the entry says not to."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(onnx.parser.parse_model(PAIRED).SerializeToString(), options)
    constants = onnx.load(tmp_path / "optimized.onnx").graph.initializer
    assert (TensorProto.INT32 in {array.data_type for array in constants}) is integers


@pytest.mark.parametrize(
    ("file", "more", "entry"),
    [("pairs", "", "1"), ("pairs", WORD, "0"), ("product", "", "")],
    ids=["qdq", "own", "fp32"],
)
def test_pairs_stay_as_they_are_on_a_gpu(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path, file: str, more: str, entry: str
) -> None:
    """The judge opens a QDQ file with the entry that config.pbtxt will have; the spec's word comes first."""
    content = product() if file == "product" else onnx.parser.parse_model(PAIRED).SerializeToString()
    environment = fake_environment(tmp_path / "venv")
    judged(write_model(FILE + more, net__onnx=content), cache, judge_in(environment))
    assert {log["floats"] for log in log_of(environment) if "open" in log} == {entry}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"provider": False}, "has no CUDA provider"),
        ({"loads": False}, "the CUDA provider could not be loaded"),
        ({"dies": True}, "ended with 9"),
    ],
)
def test_a_provider_that_fails_is_a_result(
    spec: Spec, cache: BuildCache, tmp_path: Path, settings: dict[str, bool], found: str
) -> None:
    """The message names what happened, and a process that died leaves its last lines."""
    (result, _) = judged(spec, cache, judge_in(fake_environment(tmp_path / "venv", **settings)))
    assert result.problem is not None
    assert found in result.problem.found
    if "dies" in settings:
        assert "Xid 79" in result.problem.details
    with pytest.raises(BuildError, match=found):
        choose(spec, [result])


def test_what_the_gpu_cannot_run_is_named(tmp_path: Path) -> None:
    """A refused input is an error of this run alone; the next one is answered."""
    (tmp_path / "model.onnx").write_bytes(product())
    runner = CudaRunner(
        fake_environment(tmp_path / "venv"), tmp_path / "model.onnx", {"use_tf32": "0"}, "net", graphs=False
    )
    with pytest.raises(BuildError, match="cannot run it on x"):
        runner.run({"x": np.zeros((1, 5), np.float32)})
    assert runner.run({"x": np.ones((1, 4), np.float32)})["y"].shape == (1, 4)


def test_a_message_that_was_cut_off_is_the_end() -> None:
    """A process that dies while it answers is reported as one that ended."""
    (messages,) = shipped_modules(["python_backends/judging"], "cuda_session")
    whole = io.BytesIO()
    messages.send(whole, {"kind": "run"}, {"x": np.ones(4)})
    for size in (0, 5, 16, 30, len(whole.getvalue()) - 1):
        assert messages.receive(io.BytesIO(whole.getvalue()[:size])) is None
    header, arrays = messages.receive(io.BytesIO(whole.getvalue()))
    assert (header, arrays["x"].tolist()) == ({"kind": "run"}, [1, 1, 1, 1])


def test_packages_of_the_build_stay_out_of_the_servers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numpy is another."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    (tmp_path / "model.onnx").write_bytes(product())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environment = fake_environment(tmp_path / "venv")
    runner = CudaRunner(environment, tmp_path / "model.onnx", {"use_tf32": "0"}, "net", graphs=False)
    assert runner.run({"x": np.ones((1, 4), np.float32)})["y"].shape == (1, 4)


def test_text_is_judged_on_the_cpu(write_model: WriteModel, cache: BuildCache, tmp_path: Path) -> None:
    """No GPU holds text."""
    text = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, ["b", 1])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, ["b", 1])],
    )
    model = helper.make_model(text, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    spec = write_model(FILE, net__onnx=model.SerializeToString())
    environment = fake_environment(tmp_path / "venv")
    (result,) = evaluate(spec, ("onnx-fp32",), cache, gpu=judge_in(environment))
    assert result.passed
    assert log_of(environment) == []


@pytest.mark.parametrize(("group", "on_gpu"), [("{}", False), ("{kind: gpu}", True), ("{kind: cpu}", False)])
def test_networks_are_judged_where_they_are_served(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path, group: str, on_gpu: bool
) -> None:
    """A tiny network is faster on the CPU, so a build leaves it there unless the spec says otherwise."""
    spec = write_model(f"{FILE}serving: {{instance_group: [{group}]}}\n", net__onnx=product())
    environment = fake_environment(tmp_path / "venv")
    (result,) = evaluate(spec, ("onnx-fp32",), cache, gpu=GpuJudge(environment, runs_on_gpu), timed=True)
    assert result.timing is not None
    assert result.timing.gpu == (GPU if on_gpu else "")
    assert bool(log_of(environment)) is on_gpu


@pytest.mark.slow
def test_a_damaged_record_is_measured_again(spec: Spec, cache: BuildCache, tmp_path: Path) -> None:
    """A write that was interrupted costs one measurement."""
    environment = fake_environment(tmp_path / "venv")
    (first, _) = judged(spec, cache, judge_in(environment))
    assert first.artifact is not None
    record = first.artifact.folder / "judged-gpu.json"
    record.write_text(record.read_text()[:-20])
    shutil.rmtree(environment.python.parents[1] / "lib")
    (again, _) = judged(spec, cache, judge_in(environment))
    assert again.passed


def test_the_users_python_is_announced_before_it_runs(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path
) -> None:
    """The figures of a cached artifact need its samples."""
    spec = write_model(FILE, net__onnx=onnx_file(RELU, ["b", 4]))

    class Listening(Progress):
        count = 0

        def runs(self, plan: object) -> None:
            self.count += 1

    evaluate(spec, PAIR, cache)
    progress = Listening()
    evaluate(spec, PAIR, cache, gpu=judge_in(fake_environment(tmp_path / "venv")), progress=progress)
    assert progress.count == len(PAIR)
