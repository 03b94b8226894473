"""Every way this machine has to run a network on its GPU, side by side."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report import Ratio, Report
from tritonkit.errors import BuildError, UsageError
from tritonkit.extras import need
from tritonkit.machine import cores
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_file import session_options
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.gpu import find_gpu
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.optimize.timing import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.setting import Setting
    from tritonkit.repository.export.samples import Batch
    from tritonkit.repository.modelspec import Spec
    from tritonkit.repository.optimize.job import Job

    Contenders = dict[str, Callable[[Batch], object]]

__all__ = ["compare", "run"]

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ("digits", "sentences", "resnet50")
PLANS = ("tensorrt-fp32", "tensorrt-fp16", "tensorrt-int8")
BATCHES = (1, 8, 32)
WARM, RUNS = 5, 30


def run(setting: Setting) -> Report:
    """Items per second on a GPU: TensorRT plans, ONNX Runtime's GPU providers and torch.compile over eager PyTorch."""
    gpu = find_gpu()
    if gpu is None:
        raise UsageError(
            "GPU", found="the CUDA driver shows none, so nothing was measured: run it where nvidia-smi lists one"
        )
    ratios: list[Ratio] = []
    missing: dict[str, str] = {}
    for name in MODELS:
        spec = load(ROOT / "models" / name, ROOT)
        job = job_of(spec, BuildCache(ROOT / ".tritonkit" / "cache"), threads=cores())
        contenders = _contenders(spec, job, missing)
        for size in BATCHES:
            if size <= (spec.model.serving.max_batch_size or size):
                ratios += compare(name, contenders, batch_of(job.samples, size), setting.rounds)
    left_out = "".join(f"; without {name}: {why}" for name, why in missing.items())
    return Report("gpu", f"on {gpu}, copying to it and back included{left_out}", ratios)


def _contenders(spec: Spec, job: Job, missing: dict[str, str]) -> Contenders:
    """The engines that can run here, by name; reasons for the others go into `missing`."""
    contenders: Contenders = {}
    try:
        contenders |= _torch(spec, job)
    except BuildError as reason:
        raise UsageError("torch", found=reason.found, todo=reason.todo) from reason
    for provider in ("CUDAExecutionProvider", "TensorrtExecutionProvider"):
        name = f"onnxruntime {provider.removesuffix('ExecutionProvider')}"
        try:
            contenders[name] = _onnxruntime(job, provider)
        except BuildError as reason:
            missing[name] = reason.found
    cache = BuildCache(ROOT / ".tritonkit" / "cache")
    for result in evaluate(spec, PLANS, cache, threads=cores()):
        if result.artifact is None or "model.plan" not in result.artifact.files:
            problem = result.problem
            missing[result.variant] = problem.found if problem else "tensorrt is not installed"
            continue
        runner = RUNTIMES["tensorrt"](result.artifact.folder, cores(), f"{spec.name} {result.variant}")
        contenders[result.variant if result.passed else f"{result.variant} (fails its gate)"] = runner.run
    return contenders


def _torch(spec: Spec, job: Job) -> Contenders:
    """Eager and compiled PyTorch; both take and return numpy arrays."""
    torch = need("torch", "build")
    if not torch.cuda.is_available():
        raise BuildError(
            "torch",
            found=f"PyTorch {torch.__version__} has no CUDA",
            todo="install it for your CUDA version (https://pytorch.org)",
        )
    module = job.module().cuda()
    # Two sizes run before the clock starts, so that dynamic shapes are compiled already.
    compiled = torch.compile(job.module().cuda(), dynamic=True)
    names = list(spec.model.network.inputs)

    def call(function: Any) -> Callable[[Batch], object]:
        def one(batch: Batch) -> object:
            with torch.inference_mode():
                output = function(*(torch.from_numpy(batch[name]).cuda() for name in names))
            results = output.values() if isinstance(output, dict) else output
            tensors = results if not isinstance(results, torch.Tensor) else [results]
            return [tensor.cpu() for tensor in tensors]

        return one

    return {"torch eager": call(module), "torch.compile": call(compiled)}


def _onnxruntime(job: Job, provider: str) -> Callable[[Batch], object]:
    ort = need("onnxruntime", "build")
    if provider not in ort.get_available_providers():
        raise BuildError("onnxruntime", found=f"it has no {provider}")
    options = session_options()
    options.log_severity_level = 3
    session = ort.InferenceSession(job.onnx, options, providers=[provider, "CPUExecutionProvider"])
    if provider not in session.get_providers():
        raise BuildError("onnxruntime", found=f"{provider} cannot start here")
    return lambda batch: session.run(None, batch)


def compare(
    model: str,
    contenders: Contenders,
    batch: Batch,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Ratio]:
    """Each contender's items per second over eager PyTorch's, in turns, by seconds of `clock`."""
    size = len(next(iter(batch.values())))
    # If one library cannot run this size, the others still can.
    able = {name: call for name, call in contenders.items() if _warm(call, batch)}
    seconds = [{name: _median_s(call, batch, clock) for name, call in able.items()} for _ in range(rounds)]
    base = next(iter(contenders))
    return [
        Ratio(
            f"{model}, batch {size}: {name} / {base}",
            [times[base] / times[name] for times in seconds],
            facts=_facts(seconds, name, size),
        )
        for name in able
        if name != base and base in able
    ]


def _facts(seconds: Sequence[Mapping[str, float]], name: str, size: int) -> dict[str, Any]:
    taken = statistics.median(times[name] for times in seconds)
    return {"ms": round(taken * 1000, 3), "items/s": round(size / taken)}


def _warm(call: Callable[[Batch], object], batch: Batch) -> bool:
    with suppress(Exception):
        for _ in range(WARM):
            call(batch)
        return True
    return False


def _median_s(call: Callable[[Batch], object], batch: Batch, clock: Callable[[], float]) -> float:
    taken = []
    for _ in range(RUNS):
        start = clock()
        call(batch)
        taken.append(clock() - start)
    return statistics.median(taken)
