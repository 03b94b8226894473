"""The options of ONNX Runtime in a model's configuration, read as Triton's native backend reads it.

Source of every rule here: `src/onnxruntime.cc` (ModelState, ValidateInputs, ValidateOutputs) and
`src/onnxruntime_utils.cc` (CompareDimsSupported) of triton-inference-server/onnxruntime_backend. A configuration that
the native backend refuses is refused here too, so that a repository tried on the embedded server holds no surprise in
NVIDIA's image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnxruntime as ort
from backend_config import (
    ModelError,
    TensorSpec,
    configured_dims,
    cores_of_quota,
    is_batched,
    text_parameter,
    triton_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ORT_TO_TRITON = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
GRAPH_LEVELS = {  # any other level, and none at all, means everything
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
SESSION_ENTRY = "session.use_device_allocator_for_initializers"
HALF_ENTRY = "mlas.enable_gemm_fastmath_arm64_bfloat16"
"""With "1" ONNX Runtime multiplies FP32 matrices in bfloat16 on ARM processors that can; "0" unless a model requests
it."""
ALONE = "tritonkit.threads_alone"
RUN_ENTRY = "memory.enable_memory_arena_shrinkage"
SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


def model_file(folder: Path, version: str, config: Mapping[str, Any]) -> Path:
    """The ONNX file of a version: `default_model_filename`, else `model.onnx`.

    A folder of that name holds the file `model.onnx` itself (large models with external data).
    """
    path = folder / version / (config.get("default_model_filename") or "model.onnx")
    if path.is_dir():
        path = path / "model.onnx"
    if not path.is_file():
        raise ModelError(f"no file {path}; wanted the ONNX model of version {version}")
    return path


def check_accelerators(config: Mapping[str, Any]) -> None:
    """Refuse execution providers that only the native backend has."""
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    for device in ("cpu_execution_accelerator", "gpu_execution_accelerator"):
        for entry in accelerators.get(device, []):
            raise ModelError(
                f"optimization.execution_accelerators.{device} '{entry.get('name')}' found; this"
                " stand-in has ONNX Runtime's CPU provider only: remove it, or use NVIDIA's image"
            )


def idle_workers(version: str) -> dict[str, str]:
    """Session entries of this version of ONNX Runtime for how worker threads wait.

    Waking a worker for each operator takes a good part of a run's time; one that spins until the next run takes a core
    from Triton and from other models. So workers spin briefly, and only within a run, if this version has that option.
    `python -m bench spinning` compares the two. Without a version they do not spin.
    """
    if tuple(int(part) for part in version.split(".")[:2] if part) < (1, 26):
        return {"session.intra_op.allow_spinning": "0"}
    return {"session.intra_op.spin_duration_us": "50", "session.force_spinning_stop": "1"}


def register_operators(options: ort.SessionOptions, config: Mapping[str, Any], folder: Path) -> None:
    """Load the libraries of `model_operations`: a file of the network's folder, else as the system's loader finds it.

    NVIDIA's backend knows only the latter.
    """
    for name in config.get("model_operations", {}).get("op_library_filename", []):
        library = str(folder / name) if (folder / name).is_file() else name
        try:
            options.register_custom_ops_library(library)
        except Exception as error:  # ONNX Runtime's own classes have no common root
            raise ModelError(f"model_operations: ONNX Runtime cannot load {library}: {error}") from error


def session_options(config: Mapping[str, Any]) -> ort.SessionOptions:
    """ONNX Runtime's session options for the `parameters` and graph level of a configuration."""
    options = ort.SessionOptions()
    options.logid = config.get("name", "")
    threads, alone = _threads(config, "intra_op_thread_count"), _integer(config, ALONE)
    # A stub does not see the runs of others, so it takes up to twice its share, and yields it while it waits.
    options.intra_op_num_threads = max(threads, min(alone, 2 * threads))
    version = ort.__version__ if options.intra_op_num_threads == threads else ""
    for key, value in idle_workers(version).items():
        options.add_session_config_entry(key, value)
    options.inter_op_num_threads = _threads(config, "inter_op_thread_count")
    mode = _integer(config, "execution_mode")
    if mode not in (0, 1):
        raise ModelError(f"parameter execution_mode: found {mode}, wanted 0 or 1")
    modes = ort.ExecutionMode
    options.execution_mode = modes.ORT_PARALLEL if mode else modes.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = _switch(config, "enable_mem_arena", True)
    options.enable_mem_pattern = _switch(config, "enable_mem_pattern", True)
    level = int(config.get("optimization", {}).get("graph", {}).get("level", 0))
    everything = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.graph_optimization_level = GRAPH_LEVELS.get(level, everything)
    options.add_session_config_entry(HALF_ENTRY, text_parameter(config, HALF_ENTRY) or "0")
    if entry := text_parameter(config, SESSION_ENTRY):
        options.add_session_config_entry(SESSION_ENTRY, entry)
    return options


def _threads(config: Mapping[str, Any], key: str) -> int:
    """Threads of a parameter; 0, one for each core by ONNX Runtime's own count, without a quota."""
    return max(0, _integer(config, key)) or cores_of_quota()


def run_options(config: Mapping[str, Any]) -> ort.RunOptions | None:
    """The options of every run; None if the configuration has none."""
    entry = text_parameter(config, RUN_ENTRY)
    if not entry:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry(RUN_ENTRY, entry)
    return options


def tensor_specs(nodes: Sequence[Any]) -> dict[str, TensorSpec]:
    """Name to spec for a session's `get_inputs()` or `get_outputs()`."""
    specs = {}
    for node in nodes:
        if node.type not in ORT_TO_TRITON:
            raise ModelError(f"tensor '{node.name}' is a {node.type}, which Triton cannot carry")
        dims = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
        specs[node.name] = TensorSpec(node.name, ORT_TO_TRITON[node.type], dims)
    return specs


def check_signature(
    config: Mapping[str, Any],
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    optional: Mapping[str, TensorSpec],
) -> None:
    """Refuse a configuration that differs from the file, naming the first difference.

    Every input must be configured; outputs may be left out. A configured free axis fits any input axis, while output
    dims must be equal, as in the native backend.
    """
    configured = {entry["name"] for entry in config["input"]} | _control_names(config)
    for name in inputs:
        if name not in configured:
            raise ModelError(f"input '{name}' is in the ONNX file and not in config.pbtxt")
    batched = is_batched(config)
    for entry in config["input"]:
        if batched and entry.get("optional"):
            raise ModelError(f"input '{entry['name']}': optional is for models with max_batch_size 0 only")
        _check_tensor("input", entry, {**inputs, **optional}, batched, exact=False)
    for entry in config["output"]:
        _check_tensor("output", entry, outputs, batched, exact=True)


def _check_tensor(
    side: str, entry: Mapping[str, Any], specs: Mapping[str, TensorSpec], batched: bool, exact: bool
) -> None:
    where = f"{side} '{entry['name']}'"
    spec = specs.get(entry["name"])
    if spec is None:
        raise ModelError(f"{where} is in config.pbtxt and not in the ONNX file, which has {sorted(specs)}")
    dtype = triton_dtype(entry)
    if dtype != spec.dtype:
        raise ModelError(f"{where}: config.pbtxt says {dtype}, the ONNX file has {spec.dtype}")
    if batched and (not spec.dims or spec.dims[0] != -1):
        raise ModelError(
            f"{where}: max_batch_size is above 0, so the first axis must be free; the ONNX file"
            f" has {list(spec.dims)}: export with a dynamic batch or set max_batch_size to 0"
        )
    dims = configured_dims(entry)
    full = (-1, *dims) if batched else dims
    if not _dims_fit(full, spec.dims, exact):
        subject = "the batch axis and dims" if batched else "dims"
        raise ModelError(f"{where}: config.pbtxt says {list(full)} ({subject}), the ONNX file has {list(spec.dims)}")


def _dims_fit(configured: tuple[int, ...], actual: tuple[int, ...], exact: bool) -> bool:
    if not actual:  # a scalar is configured as [1], since Triton has no rank 0
        return all(dim == 1 for dim in configured)
    if len(configured) != len(actual):
        return False
    return all(want == have or (have == -1 and not exact) for want, have in zip(configured, actual, strict=True))


def _control_names(config: Mapping[str, Any]) -> set[str]:
    """Inputs that the sequence batcher adds itself; they are not listed under `input`."""
    controls = config.get("sequence_batching", {}).get("control_input", [])
    return {control["name"] for control in controls}


def _integer(config: Mapping[str, Any], key: str) -> int:
    text = text_parameter(config, key)
    try:
        return int(text or 0)
    except ValueError:
        raise ModelError(f"parameter {key}: found '{text}', wanted a whole number") from None


def _switch(config: Mapping[str, Any], key: str, default: bool) -> bool:
    text = text_parameter(config, key)
    if not text:
        return default
    if text.lower() not in SWITCH:
        raise ModelError(f"parameter {key}: found '{text}', wanted 0 or 1")
    return SWITCH[text.lower()]
