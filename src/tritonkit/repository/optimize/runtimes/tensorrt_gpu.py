"""TensorRT on a GPU, which runs a plan as Triton's tensorrt backend does, with the profile nearest to the batch.

It needs a torch with CUDA, for the GPU's memory and stream.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.repository.optimize.variants.tensorrt_library import Log
from tritonkit.text import first_line

__all__ = ["open_file", "open_plan", "open_runner"]


class _Plan:
    """An engine with an execution context for each optimization profile."""

    def __init__(self, trt: Any, engine: Any, where: str) -> None:
        self._trt = trt
        self._torch = need("torch", "build")
        self._engine = engine
        self._where = where
        self._stream = self._torch.cuda.Stream()
        names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]
        is_input = {n: engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT for n in names}
        self._inputs = [name for name in names if is_input[name]]
        self._outputs = [name for name in names if not is_input[name]]
        self._contexts = [self._context(profile) for profile in range(max(1, engine.num_optimization_profiles))]

    def _context(self, profile: int) -> Any:
        context = self._engine.create_execution_context()
        context.set_optimization_profile_async(profile, self._stream.cuda_stream)
        return context

    def run(self, batch: Batch) -> Batch:
        """Outputs by name; copying to the GPU and back is part of it."""
        return self._run(batch, self._contexts[self._nearest(batch)])

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """Mean time of each layer by TensorRT's IProfiler, slowest first; fused layers are one."""
        base: Any = self._trt.IProfiler
        times: dict[str, float] = {}

        class Profiler(base):  # type: ignore[misc]  # the library's classes have no types
            def __init__(self) -> None:
                base.__init__(self)

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                times[layer_name] = times.get(layer_name, 0.0) + ms

        self.run(batch)
        # The profiler gets its own context, because it cannot be removed again.
        context = self._context(self._nearest(batch))
        context.profiler = profiler = Profiler()
        for _ in range(repeats):
            self._run(batch, context)
        del profiler
        operators = [OperatorTime(n, n.partition("_")[0].partition("(")[0], ms / repeats) for n, ms in times.items()]
        return sorted(operators, key=lambda operator: -operator.ms)

    def _nearest(self, batch: Batch) -> int:
        """The profile whose `opt` shapes are nearest, which Triton chooses too (GetMostOptimizedProfile)."""

        def distance(profile: int) -> int:
            opts = (
                (self._engine.get_tensor_profile_shape(name, profile)[1], batch[name].shape) for name in self._inputs
            )
            return sum(abs(size - opt) for opt_shape, shape in opts for opt, size in zip(opt_shape, shape, strict=True))

        count = len(self._contexts)
        return min(range(count), key=distance) if count > 1 else 0

    def _run(self, batch: Batch, context: Any) -> Batch:
        torch = self._torch
        with torch.cuda.stream(self._stream):
            held = {name: torch.from_numpy(batch[name]).cuda() for name in self._inputs}
            for name, tensor in held.items():
                if not context.set_input_shape(name, tuple(tensor.shape)):
                    raise BuildError(
                        self._where,
                        found=f"the plan takes no {name} of {list(tensor.shape)}",
                        wanted="sizes within its optimization profiles",
                        todo="see max_batch_size and free_axes",
                    )
            held |= {name: self._empty(context, name) for name in self._outputs}
            for name, tensor in held.items():
                context.set_tensor_address(name, tensor.data_ptr())
            done = context.execute_async_v3(self._stream.cuda_stream)
        self._stream.synchronize()
        if not done:
            raise BuildError(self._where, found="TensorRT could not run the plan")
        return {name: held[name].cpu().numpy() for name in self._outputs}

    def _empty(self, context: Any, name: str) -> Any:
        import numpy as np

        dtype = np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(name)))
        shape = tuple(context.get_tensor_shape(name))
        return self._torch.from_numpy(np.empty(shape, dtype)).cuda()


def open_plan(trt: Any, file: Path, where: str) -> Any:
    """The engine in a plan's file; BuildError where this TensorRT or this GPU does not take it."""
    log = Log(trt)
    runtime = trt.Runtime(log.logger)
    # A version-compatible plan carries its own runtime.
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(file.read_bytes())
    if engine is None:
        raise BuildError(
            where,
            found=f"{trt.__name__} {trt.__version__} cannot load {file.name}: {log.first}",
            wanted="the version and the GPU it was built for",
            todo="build it again on this machine with --force",
            details=log.text,
        )
    return engine


def open_runner(folder: Path, threads: int, where: str) -> _Plan:
    """The model.plan in `folder`; `threads` do not matter on a GPU."""
    return open_file(folder / "model.plan", where)


def open_file(file: Path, where: str) -> _Plan:
    """The plan in a file."""
    trt, torch = need("tensorrt", "tensorrt"), need("torch", "build")
    if not torch.cuda.is_available():
        raise BuildError(
            where,
            found=f"PyTorch {torch.__version__} has no CUDA here",
            wanted="one with CUDA, which holds the tensors that TensorRT runs on",
            todo="install PyTorch for your CUDA version (https://pytorch.org)",
        )
    try:
        return _Plan(trt, open_plan(trt, file, where), where)
    except RuntimeError as error:
        raise BuildError(where, found=f"CUDA failed: {first_line(error)}") from error
