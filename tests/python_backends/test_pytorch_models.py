"""The models that Triton runs with PyTorch, opened with their device: TorchScript, exported programs and compiled
packages.

The example in docs/python_backends.md is one of a user's own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import textwrap
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.export.passes
from backend_batch import Request, RequestError
from backend_config import ModelError

from tests.python_backends.torch_gpu import GPU, Gpu, gpu
from tests.rooms import no_room

__all__ = ["gpu"]

CPU = {"model_instance_kind": "CPU", "model_instance_device_id": "0"}
BACKENDS = Path(__file__).parents[2] / "python_backends"
Package = Callable[..., Path]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Triton's log, behind a stand-in for the module that only Triton's Python has."""
    lines: list[str] = []
    triton = types.ModuleType("triton_python_backend_utils")
    triton.Logger = types.SimpleNamespace(log_info=lines.append)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, triton.__name__, triton)
    monkeypatch.setitem(sys.modules, "backend_model", _module(BACKENDS / "backends" / "backend_model.py"))
    return lines


def _module(file: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def opened(file: Path, backend: Path, instance: dict[str, str], **fields: Any) -> Any:
    """The network of a file that doubles x, as the model `net`."""
    tensor = {"data_type": "TYPE_FP32", "dims": [2]}
    config = {
        "name": "net",
        "max_batch_size": 4,
        "input": [{"name": "x", **tensor}],
        "output": [{"name": "y", **tensor}],
    }
    place = {"model_name": "net", "model_repository": str(file.parents[1]), "model_version": file.parent.name}
    return _module(backend).open_network(instance | place | {"model_config": json.dumps(config | fields)})


class Doubling(torch.nn.Module):
    """A network of one operator."""

    def forward(self, x: Any) -> Any:
        """Twice x."""
        return x * 2


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A TorchScript file."""
    file = tmp_path / "1" / "model.pt"
    file.parent.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and what the pytorch backend loads
        torch.jit.save(torch.jit.trace(Doubling(), torch.ones(3, 2)), file)
    return file


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A compiled package's note of its device, without the code."""

    def write(device: str, capability: str = "90") -> Path:
        file = tmp_path / "1" / "model.pt2"
        file.parent.mkdir()
        notes = {"AOTI_DEVICE_KEY": device, "AOTI_COMPUTE_CAPABILITY": capability}
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("model/archive_format", "pt2")
            archive.writestr("model/data/aotinductor/model/m.wrapper_metadata.json", json.dumps(notes))
        return file

    return write


class Shifting(torch.nn.Module):
    """A network with a weight, a constant and a new tensor, each on a device of its own accord."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), 2.0))
        self.shift = torch.tensor([1.0, 0.0])

    def forward(self, x: Any) -> Any:
        """2 x + (1, 0) + (0, 1)."""
        return x * self.weight + self.shift + torch.arange(2.0)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A program of torch.export for batches of any size."""
    file = tmp_path / "1" / "program.pt2"
    file.parent.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporting uses what PyTorch has deprecated itself
        batch = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(Shifting(), (torch.ones(3, 2),), dynamic_shapes=batch), file)
    return file


@pytest.fixture
def tf32() -> Iterator[Callable[[], tuple[bool, bool]]]:
    """PyTorch's settings for matrix products and convolutions, which hold for the process."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    products.allow_tf32, convolutions.allow_tf32 = False, True
    yield lambda: (products.allow_tf32, convolutions.allow_tf32)
    products.allow_tf32, convolutions.allow_tf32 = False, True


SCRIPT, COMPILED = BACKENDS / "backends" / "pytorch" / "model.py", BACKENDS / "torch_compile" / "model.py"
EXPORTED = BACKENDS / "torch_export" / "model.py"


@pytest.mark.parametrize("instance", [CPU, GPU])
def test_torchscript_runs_where_triton_says(log: list[str], gpu: Gpu, script: Path, instance: dict[str, str]) -> None:
    """On the GPU with its configuration's graphs."""
    network = opened(script, SCRIPT, instance, optimization={"cuda": {"graphs": True}})
    (answer,) = network.answer([Request({"x": np.ones((3, 2), np.float32)}, ["y"])])
    assert not isinstance(answer, RequestError)
    assert answer["y"].tolist() == [[2, 2]] * 3
    on_gpu = instance is GPU
    assert gpu.loaded == (["cuda:0"] if on_gpu else ["cpu"])
    assert log == (["model 'net': CUDA graphs on cuda:0 for batches of 1, 2, 4"] if on_gpu else [])


@pytest.mark.parametrize("instance", [CPU, GPU])
def test_a_program_runs_where_triton_says(
    log: list[str], gpu: Gpu, exported: Path, instance: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights, constants and new tensors go to the GPU, where it has its configuration's graphs."""
    places: list[str] = []
    move = torch.export.passes.move_to_device_pass

    def record(program: Any, place: Any) -> Any:
        places.append(str(place))
        return move(program, place)

    monkeypatch.setattr(torch.export.passes, "move_to_device_pass", record)
    network = opened(exported, EXPORTED, instance, optimization={"cuda": {"graphs": True}})
    (answer,) = network.answer([Request({"x": np.ones((3, 2), np.float32)}, ["y"])])
    assert not isinstance(answer, RequestError)
    assert answer["y"].tolist() == [[3, 3]] * 3
    on_gpu = instance is GPU
    assert places == (["cuda:0"] if on_gpu else [])
    assert log == (["model 'net': CUDA graphs on cuda:0 for batches of 1, 2, 4"] if on_gpu else [])


def test_a_program_moves_all_its_tensors(exported: Path) -> None:
    """To `meta` here, a device that every machine has."""
    program = torch.export.passes.move_to_device_pass(torch.export.load(exported), "meta")
    result = program.module()(torch.ones(3, 2, device="meta"))
    assert result.device.type == "meta"


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_file_that_is_no_program_is_refused(log: list[str], exported: Path, content: bytes) -> None:
    """The message has PyTorch's version and reason, and what to do."""
    exported.write_bytes(content)
    with pytest.raises(
        ModelError, match=r"PyTorch [\d.+a-z]+ cannot load .*program\.pt2: .+; wanted .* build it again"
    ):
        opened(exported, EXPORTED, CPU)


@pytest.mark.parametrize(
    ("backend", "kind", "parameters", "threads"),
    [
        (SCRIPT, CPU, {}, "all"),
        (SCRIPT, GPU, {}, 1),
        (SCRIPT, GPU, {"INTRA_OP_THREAD_COUNT": "3"}, 3),
        (EXPORTED, CPU, {}, "share"),
        (EXPORTED, CPU, {"INTRA_OP_THREAD_COUNT": "3"}, 3),
        (EXPORTED, GPU, {}, 1),
    ],
)
def test_threads_are_those_of_the_device(
    log: list[str],
    gpu: Gpu,
    script: Path,
    exported: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: Path,
    kind: dict[str, str],
    parameters: dict[str, str],
    threads: int | str,
) -> None:
    """One on a GPU; on the CPU all cores as Triton's own backend has it, or an instance's part of them."""
    counts: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.setattr("pytorch_network.cores", lambda: 8)
    given = {key: {"string_value": text} for key, text in parameters.items()}
    opened(script if backend == SCRIPT else exported, backend, kind, parameters=given, instance_group=[{"count": 2}])
    assert counts == [{"all": 8, "share": 4}.get(str(threads), threads)]


@pytest.mark.parametrize(
    ("backend", "text", "allowed"),
    [
        (SCRIPT, "", (False, True)),
        (SCRIPT, "false", (False, False)),
        (EXPORTED, "", (False, False)),
        (EXPORTED, "true", (True, True)),
    ],
)
def test_fp32_is_computed_as_the_configuration_says(
    log: list[str],
    gpu: Gpu,
    script: Path,
    exported: Path,
    tf32: Callable[[], tuple[bool, bool]],
    backend: Path,
    text: str,
    allowed: tuple[bool, bool],
) -> None:
    """A model of a build computes FP32 as FP32 by default, and Triton's own backend as PyTorch has it."""
    parameters = {"tritonkit.tf32": {"string_value": text}}
    opened(script if backend == SCRIPT else exported, backend, GPU, parameters=parameters)
    assert tf32() == allowed


@pytest.mark.parametrize(("instance", "runs"), [(CPU, 2), (GPU, 1)])
def test_a_gpu_runs_texts_of_all_lengths_together(
    log: list[str], gpu: Gpu, script: Path, instance: dict[str, str], runs: int
) -> None:
    """A run costs a GPU more than the positions that padding adds; a CPU runs a long text apart from a short one."""
    sizes: list[int] = []

    class Counting:
        begin = staticmethod(lambda: None)

        def run(self, parts: list[Any], outputs: list[str]) -> Any:
            sizes.append(len(parts))
            return network.engine.run(parts, outputs)

    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    pad = json.dumps({"x": {"axis": 0, "value": 0.0}, "y": {"axis": 0}})
    fields = {"input": [{"name": "x", "allow_ragged_batch": True, **tensor}], "output": [{"name": "y", **tensor}]}
    network = opened(script, SCRIPT, instance, parameters={"tritonkit.pad": {"string_value": pad}}, **fields)
    texts = [Request({"x": np.full((1, length), 3, np.float32)}, ["y"]) for length in (1, 200)]
    answers = replace(network, engine=Counting()).answer(texts)
    assert [answer["y"].tolist() for answer in answers] == [[[6.0]], [[6.0] * 200]]
    assert len(sizes) == runs


def test_a_server_without_a_log_is_enough_on_the_cpu(
    log: list[str], script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of AWS Lambda has the rest of Triton's module."""
    monkeypatch.delattr(sys.modules["triton_python_backend_utils"], "Logger")
    network = opened(script, SCRIPT, CPU)
    (answer,) = network.answer([Request({"x": np.ones((1, 2), np.float32)}, ["y"])])
    assert not isinstance(answer, RequestError)
    assert answer["y"].tolist() == [[2, 2]]


def test_parameters_about_cuda_count(log: list[str], gpu: Gpu, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DISABLE_CUDNN and ENABLE_CACHE_CLEANING, as in the native backend."""
    monkeypatch.setattr(torch.backends.cudnn, "enabled", True)
    switches = {"DISABLE_CUDNN": "true", "ENABLE_CACHE_CLEANING": "true"}
    parameters = {key: {"string_value": text} for key, text in switches.items()}
    network = opened(script, SCRIPT, GPU, parameters=parameters)
    network.answer([Request({"x": np.ones((3, 2), np.float32)}, ["y"])])
    assert not torch.backends.cudnn.enabled
    assert gpu.cleanings == 1


@pytest.mark.parametrize("backend", [SCRIPT, COMPILED, EXPORTED])
def test_a_pytorch_without_cuda_is_refused(log: list[str], script: Path, backend: Path) -> None:
    """Before the file is read: this environment's own PyTorch."""
    if torch.backends.cuda.is_built():
        pytest.skip("this PyTorch has CUDA")
    for name in ("model.pt2", "program.pt2"):
        script.with_name(name).touch()
    with pytest.raises(ModelError, match="PyTorch has no CUDA: tritonkit server install --gpu --torch"):
        opened(script, backend, GPU)


def test_another_kind_is_refused(log: list[str], script: Path) -> None:
    """KIND_MODEL leaves the choice of the device to the model, which has none."""
    with pytest.raises(ModelError, match=r"instance kind MODEL found.* KIND_CPU or KIND_GPU"):
        opened(script, SCRIPT, CPU | {"model_instance_kind": "MODEL"})


def test_a_file_that_does_not_fit_the_gpu_is_refused(log: list[str], gpu: Gpu, script: Path) -> None:
    """The message has CUDA's figures and says what to lower."""
    gpu.no_load = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")
    with pytest.raises(ModelError, match=r"cannot load .*model\.pt: CUDA out of memory.* wanted memory"):
        opened(script, SCRIPT, GPU)


@pytest.mark.parametrize(
    ("built_for", "instance", "kinds"),
    [("cpu", GPU, "cpu, .* on cuda: .* KIND_CPU"), ("cuda", CPU, "cuda, .* on cpu: .* KIND_GPU")],
)
def test_a_package_for_another_device_is_refused(
    log: list[str], gpu: Gpu, package: Package, built_for: str, instance: dict[str, str], kinds: str
) -> None:
    """The package itself says what it was compiled for."""
    with pytest.raises(ModelError, match=rf"model\.pt2 was compiled for {kinds}"):
        opened(package(built_for), COMPILED, instance)


@pytest.mark.parametrize(
    ("built", "own", "runs"), [("90", (9, 0), True), ("80", (8, 6), True), ("86", (8, 0), False), ("80", (9, 0), False)]
)
def test_a_package_for_another_card_is_refused(
    log: list[str], gpu: Gpu, package: Package, built: str, own: tuple[int, int], runs: bool
) -> None:
    """A GPU of the same generation runs it unless it is older; the file here has no code, which is another error."""
    gpu.capability = own
    message = (
        "Failed to find"
        if runs
        else f"compute capability {int(built) / 10}, and cuda:0 has {own[0]}.{own[1]}: build it on"
    )
    with pytest.raises(ModelError, match=message):
        opened(package("cuda", built), COMPILED, GPU)


def test_a_package_for_another_processor_is_refused(
    log: list[str], package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an instruction that the processor lacks ends the process."""
    module = _module(COMPILED)
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512f")
    monkeypatch.setattr(module, "PROCESSOR", tmp_path / "cpuinfo")
    module._check_processor(tmp_path, "AVX2")
    module._check_processor(tmp_path, "AVX512")
    module._check_processor(tmp_path, "INVALID_VEC_ISA")
    with pytest.raises(
        ModelError, match="compiled for a processor with AVX512 AVX512_VNNI, and this one lacks AVX512_VNNI"
    ):
        module._check_processor(tmp_path, "AVX512 AVX512_VNNI")


def test_a_package_is_loaded_for_graphs(
    log: list[str], gpu: Gpu, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the instance's GPU, without the locks that a capture does not allow."""
    settings: list[Any] = []

    class Loader:
        load_metadata_from_package = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package

        def __init__(self, *given: Any) -> None:
            settings.extend(given)

        def boxed_run(self, tensors: list[Any]) -> list[Any]:
            return [tensors[0] * 2]

    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", Loader)
    file = package("cuda")
    network = opened(file, COMPILED, GPU, optimization={"cuda": {"graphs": True}})
    (answer,) = network.answer([Request({"x": np.ones((3, 2), np.float32)}, ["y"])])
    assert not isinstance(answer, RequestError)
    assert answer["y"].tolist() == [[2, 2]] * 3
    assert settings == [str(file), "model", True, 1, 0]
    assert gpu.replays > 0


def test_a_package_is_unpacked_where_the_server_removes_it(
    log: list[str], package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever size the server allows files, and nothing is left of a package that cannot be loaded."""
    place, file = tmp_path / "unpacked", package("cpu")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("model/data/aotinductor/model/m.wrapper.so", bytes(1 << 20))
    of_others = [place / str(os.getppid()), place / "ended"]
    for folder in of_others:
        folder.mkdir(parents=True)
    monkeypatch.setenv("TRITONKIT_UNPACK_DIR", str(place))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with no_room(1000), pytest.raises(ModelError, match=f"{place}/{os.getpid()}/.*m.wrapper.so") as caught:
        opened(file, COMPILED, CPU)
    assert "ELF" in str(caught.value)
    assert list(place.iterdir()) == of_others[:1]
    assert os.environ["TMPDIR"] == str(tmp_path / "nowhere")
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == limits


@pytest.mark.parametrize("instance", [CPU, GPU])
def test_the_example_of_the_docs_answers(gpu: Gpu, instance: dict[str, str]) -> None:
    """On both kinds of device; each request gets its own rows."""
    page = (BACKENDS.parent / "docs" / "python_backends.md").read_text()
    code = page[page.index("    class TritonPythonModel:", page.index("### Python of your own on a GPU")) :]
    code = code[: code.index("\n\nA KIND_CPU model")]
    triton = types.SimpleNamespace(
        get_input_tensor_by_name=lambda request, name: types.SimpleNamespace(as_numpy=lambda: request[name]),
        Tensor=lambda name, array: (name, array.tolist()),
        InferenceResponse=dict,
    )
    names: dict[str, Any] = {"np": np, "torch": torch, "pb_utils": triton, "build_network": Doubling}
    exec(textwrap.dedent(code), names)  # noqa: S102  # the page's own text
    model = names["TritonPythonModel"]()
    model.initialize(instance)
    answers = model.execute([{"x": np.ones((1, 2), np.float32)}, {"x": np.zeros((2, 2), np.float32)}])
    assert answers == [{"y": [[2, 2]]}, {"y": [[0, 0]] * 2}]
