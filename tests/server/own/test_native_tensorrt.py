"""ONNX Runtime's TensorRT provider in the native backend, on a GPU and a TensorRT of tests/fakecuda.py and
tests/fakedriver.py, in a real Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fakecuda import FakeCuda
from tests.fakedriver import WriteTensorRT
from tests.server.cuda_gpu import Gpu, loaded, serving
from tests.server.cuda_models import ON_CPU, ON_GPU, ROWS, convolution, cuda, product
from tests.server.onnx_models import BATCH
from tests.server.raw import ask

VERSION = 101601
TWICE = ON_GPU.replace("count: 1", "count: 2")
ENGINE = "TensorrtExecutionProvider_TRTKernel_graph_fake_sm90.engine"
TIMINGS = f"timings-{VERSION}/TensorrtExecutionProvider_cache_sm90.timing"
FREE = {
    "trt_profile_min_shapes": "x:1x1x2x2",
    "trt_profile_opt_shapes": "x:8x1x4x4",
    "trt_profile_max_shapes": "x:8x1x8x8",
}


def tensorrt(graphs: bool = False, **options: str) -> str:
    """The field `optimization` of a model that TensorRT runs."""
    return cuda(graphs=graphs, accelerator="tensorrt", **options)


def model(more: str, operator: str = "Identity") -> Callable[[Path], None]:
    """A writer of a product on a GPU."""
    return lambda folder: product(folder, more, operator)


BOTH = """optimization { execution_accelerators {
  gpu_execution_accelerator { name: "cuda" parameters { key: "use_tf32" value: "0" } }
  gpu_execution_accelerator { name: "tensorrt" parameters { key: "precision_mode" value: "FP16" } }
} }
"""

SERVED: dict[str, Callable[[Path], None]] = {
    "cpu": model(ON_CPU),
    "usual": model(TWICE + tensorrt()),
    "named": model(ON_GPU + tensorrt(precision_mode="INT8", max_workspace_size_bytes="1024", trt_fp16_enable="true")),
    "behind": model(ON_GPU + BOTH),
    "graphs": model(ON_GPU + tensorrt(graphs=True)),
    "free": lambda folder: convolution(folder, "-1", ON_GPU + tensorrt()),
    "ranges": lambda folder: convolution(folder, "-1", ON_GPU + tensorrt(**FREE)),
    "split": model(ON_GPU + tensorrt(), "Erf"),
    "unkept": model(ON_GPU + tensorrt(trt_engine_cache_enable="0", trt_timing_cache_enable="False")),
}
REFUSED = {
    "unknown": (
        tensorrt(trt_cuda_graph_enable="1"),
        "the TensorRT provider's option 'trt_cuda_graph_enable' found in gpu_execution_accelerator 'tensorrt'; wanted"
        " precision_mode, max_workspace_size_bytes, trt_auxiliary_streams, ",
    ),
    "library": (tensorrt(trt_extra_plugin_lib_paths="/opt/x.so"), "option 'trt_extra_plugin_lib_paths' found"),
    "precision": (tensorrt(precision_mode="FP8"), "found 'FP8', wanted one of FP32, FP16, BF16, INT8"),
    "flag": (tensorrt(trt_fp16_enable="yes"), "trt_fp16_enable: found 'yes', wanted 0 or 1"),
    "number": (tensorrt(max_workspace_size_bytes="1 GiB"), "bytes: found '1 GiB', wanted a whole number"),
    "relative": (tensorrt(trt_engine_cache_path="../x"), "path: found '../x', wanted an absolute path"),
    "profile": (tensorrt(trt_profile_max_shapes="x:8x16"), "max_shapes found without the others; wanted trt_profile_"),
    "other": (cuda(accelerator="NvTensorRTRTX"), "ONNX Runtime's CPU, CUDA and TensorRT providers only"),
}


@pytest.fixture(scope="module")
def library(write_tensorrt: WriteTensorRT, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with TensorRT."""
    folder = tmp_path_factory.mktemp("tensorrt")
    write_tensorrt(folder, VERSION)
    return folder


def flags(library: Path, cache: Path) -> tuple[str, ...]:
    """The settings that `serve` gives the backend."""
    paths = ":".join(str(library / f"lib{name}.so.10") for name in ("nvinfer", "nvonnxparser"))
    settings = {"tensorrt-libraries": paths, "tensorrt-cache": cache}
    return tuple(f"--backend-config=onnxruntime,{name}={value}" for name, value in settings.items())


@pytest.fixture(scope="module")
def gpu(
    native: Path, compiled_fake_cuda: FakeCuda, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gpu]:
    """A server with one GPU, and TensorRT."""
    folder = tmp_path_factory.mktemp("gpu")
    noted = str(folder / "providers")
    fake = replace(compiled_fake_cuda.for_server(folder), providers_file=noted, splits="Erf")
    models = SERVED | {name: model(ON_GPU + field) for name, (field, _) in REFUSED.items()}
    with serving(native, fake, folder, *flags(library, folder / "cache"), **models) as made:
        yield made


@pytest.fixture
def rows() -> np.ndarray:
    """A full batch."""
    return np.random.default_rng(3).random((BATCH, ROWS), np.float32)


def sessions(fake: FakeCuda) -> list[dict[str, str]]:
    """The providers and options of the sessions so far."""
    text = Path(fake.providers_file).read_text()
    return [dict(line.split("=", 1) for line in part.splitlines()) for part in text.strip().split("\n\n")]


def cache_of(gpu: Gpu, name: str) -> Path:
    """The folder with a model's engines."""
    (folder,) = (path.parent for path in (gpu.running.log.parent / "cache" / name).glob(f"*/{ENGINE}"))
    return folder


def test_tensorrt_goes_before_cuda_with_a_profile_of_all_batches(gpu: Gpu, rows: np.ndarray) -> None:
    """Two instances share a session, whose engine takes one item to the largest batch; its answers are the CPU's."""
    before = gpu.fake.counters()
    with loaded(gpu, "cpu", "usual"):
        assert gpu.changes(before)["sessions"] == gpu.changes(before)["engines_built"] == 1
        expected = ask(gpu.client, "cpu", x=rows)["y"]
        for size in (1, 3, BATCH):
            np.testing.assert_array_equal(ask(gpu.client, "usual", x=rows[:size])["y"], expected[:size])
    options = sessions(gpu.fake)[-1]
    engines = cache_of(gpu, "usual")
    assert options == {
        "providers": "tensorrt cuda",
        "device_id": "0",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(engines),
        "trt_profile_max_shapes": f"x:{BATCH}x{ROWS}",
        "trt_profile_min_shapes": f"x:1x{ROWS}",
        "trt_profile_opt_shapes": f"x:{BATCH}x{ROWS}",
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str((engines.parent / TIMINGS).parent),
    }
    assert (engines.parent / TIMINGS).is_file()


def test_engines_are_taken_from_the_folder(gpu: Gpu) -> None:
    """A second load builds none; a network of other weights does, whose engine ONNX Runtime would call the same."""
    with loaded(gpu, "usual"):
        pass
    before = gpu.fake.counters()
    with loaded(gpu, "usual"):
        assert gpu.changes(before)["engines_read"] == 1
        assert "engines_built" not in gpu.changes(before)
    folder = gpu.running.log.parent / "repository" / "usual" / "1"
    file = folder / "model.onnx"
    kept = file.read_bytes()
    file.write_bytes(kept.replace(b"between", b"betweem"))
    (folder / "manifest.json").write_text("{}")
    try:
        with loaded(gpu, "usual"):
            assert gpu.changes(before)["engines_built"] == 1
    finally:
        file.write_bytes(kept)
    with loaded(gpu, "usual"):
        assert gpu.changes(before)["engines_read"] == 2  # the manifest says nothing that a server computes


def test_what_an_interrupted_build_left_is_built_again(gpu: Gpu) -> None:
    """An engine that cannot be read fails its model once, and the next load builds it."""
    with loaded(gpu, "named"):
        pass
    engine = cache_of(gpu, "named") / ENGINE
    engine.write_text("damaged")
    assert "could not deserialize engine" in gpu.failure("named")
    before = gpu.fake.counters()
    with loaded(gpu, "named"):
        assert gpu.changes(before)["engines_built"] == 1
    assert engine.read_text() != "damaged"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("named", {"trt_int8_enable": "1", "trt_fp16_enable": "1", "trt_max_workspace_size": "1024"}),
        ("behind", {"trt_fp16_enable": "1", "providers": "tensorrt cuda"}),
        ("unkept", {"trt_engine_cache_enable": "0", "trt_timing_cache_enable": "0"}),
        ("ranges", FREE),
    ],
)
def test_settings_have_nvidias_names_or_onnx_runtimes(gpu: Gpu, name: str, expected: dict[str, str]) -> None:
    """Each is given to the provider by ONNX Runtime's name."""
    with loaded(gpu, name):
        pass
    options = sessions(gpu.fake)[-1]
    assert {key: options.get(key) for key in expected} == expected
    assert ("trt_engine_cache_path" in options) == (name != "unkept")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("free", "input 'x' has [1, -1, -1], where -1 is any size"),
        ("split", "the CUDA provider runs a part of the network between parts that TensorRT runs"),
    ],
)
def test_shapes_that_no_profile_has_are_served_with_a_warning(gpu: Gpu, name: str, reason: str) -> None:
    """The engine grows with the shapes that come."""
    with loaded(gpu, name):
        pass
    assert not [key for key in sessions(gpu.fake)[-1] if "profile" in key]
    again = f"model '{name}': TensorRT builds an engine again, for seconds or minutes, whenever a request is smaller or"
    assert f"{again} larger than all before: {reason}" in gpu.log


def test_graphs_are_left_out(gpu: Gpu, rows: np.ndarray) -> None:
    """The engine runs each batch as it is."""
    before = gpu.fake.counters()
    with loaded(gpu, "graphs"):
        ask(gpu.client, "graphs", x=rows[:3])
        assert gpu.changes(before)["runs"] == 1
        assert "captures" not in gpu.changes(before)
    assert "model 'graphs' is served without CUDA graphs: TensorRT's engines run it" in gpu.log


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_setting_is_refused(gpu: Gpu, rows: np.ndarray, name: str) -> None:
    """The reason says what was found and what is wanted; other models go on."""
    with loaded(gpu, "cpu"):
        assert REFUSED[name][1] in gpu.failure(name)
        assert len(ask(gpu.client, "cpu", x=rows)["y"]) == BATCH


def broken(library: Path, folder: Path, names: Sequence[str]) -> Path:
    """A folder with some of TensorRT's libraries."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(library / name)
    return folder


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], "libnvinfer.so.10: cannot open shared object file"),
        (["libnvinfer.so.10"], "libnvonnxparser.so.10: cannot open shared object file"),
    ],
)
def test_without_tensorrt_only_its_models_are_refused(
    native: Path, fake_cuda: FakeCuda, library: Path, tmp_path: Path, rows: np.ndarray, names: list[str], reason: str
) -> None:
    """The reason names the library; models of the CUDA provider and of the CPU are served."""
    there = broken(library, tmp_path / "there", names)
    models = {"cpu": SERVED["cpu"], "plain": model(ON_GPU), "usual": SERVED["usual"]}
    with (
        serving(native, fake_cuda, tmp_path, *flags(there, tmp_path / "cache"), **models) as gpu,
        loaded(gpu, "cpu", "plain"),
    ):
        failure = gpu.failure("usual")
        assert reason in failure
        assert "docs/gpu.md has the packages; or remove the accelerator" in failure
        np.testing.assert_array_equal(*(ask(gpu.client, name, x=rows)["y"] for name in ("cpu", "plain")))


@pytest.mark.parametrize("cache", ["", "/proc/engines"])
def test_without_a_folder_engines_are_built_at_each_start(
    native: Path, fake_cuda: FakeCuda, library: Path, tmp_path: Path, cache: str
) -> None:
    """The log says why; a model may name a folder of its own."""
    own = tmp_path / "own"
    models = {"usual": SERVED["usual"], "own": model(ON_GPU + tensorrt(trt_engine_cache_path=str(own)))}
    named = flags(library, Path(cache))[: 2 if cache else 1]
    with serving(native, fake_cuda, tmp_path, *named, **models) as gpu:
        for _ in range(2):
            with loaded(gpu, "usual", "own"):
                pass
        assert fake_cuda.counters()["engines_built"] == 3
        assert fake_cuda.counters()["engines_read"] == 1
        assert len(list(own.glob(f"own/*/{ENGINE}"))) == 1
        reason = f"each start: {cache}/usual/" if cache else "each start"
        assert f"model 'usual': TensorRT's engines are built at {reason}" in gpu.log
