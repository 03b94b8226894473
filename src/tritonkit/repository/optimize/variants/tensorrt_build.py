"""Conversion of ONNX to a serialized TensorRT plan by either library, since both have one API."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tritonkit.disk import write_whole
from tritonkit.errors import BuildError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.variants.tensorrt_library import Library, Log
from tritonkit.repository.optimize.variants.tensorrt_profiles import Profile, Range

__all__ = ["build_plan"]


def build_plan(
    spec: Spec, library: Library, onnx: Path, ranges: Sequence[Profile], timing: Path
) -> tuple[Any, dict[str, Any]]:
    """Build a plan from a typed ONNX file, for the given profiles.

    It returns the plan as a buffer, and facts read back from the builder's configuration:
    profiles, and the plan's compute capabilities (`8.6`; none for the GPU it was built on). `timing`
    is the file of measured kernel times that builds share; it is read and written if the library
    measures. BuildError with TensorRT's own message if it cannot parse or build.
    """
    trt, log = library.module, Log(library.module)
    builder = _builder(spec, library, log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    _parse(spec, library, network, log, onnx)
    config = builder.create_builder_config()
    made = [_add_profile(spec, builder, config, shapes) for shapes in ranges]
    _configure(spec, library, config, onnx.name)
    # Held until the build is over, as TensorRT wants it.
    kernels = _timing_cache(config, timing) if library.gpu else None
    data = builder.build_serialized_network(network, config)
    if data is None:
        limit = spec.model.optimize.tensorrt.memory_limit
        raise BuildError(
            f"{spec.file} network",
            found=f"{library.name} built no plan: {log.first}",
            todo="raise optimize.tensorrt.memory_limit, or leave it out" if limit else "choose another variant",
            details=log.text,
        )
    if kernels is not None:
        with _undeprecated():
            write_whole(timing, memoryview(kernels.serialize()))
    profiles = [
        {name: asdict(Range(*map(tuple, profile.get_shape(name)))) for name in names}
        for profile, names in zip(made, ranges, strict=True)
    ]
    return data, {"profiles": profiles, "compute_capabilities": _capabilities(config, library)}


def _builder(spec: Spec, library: Library, log: Log) -> Any:
    try:
        return library.module.Builder(log.logger)
    except TypeError as error:  # the binding's error if the library returned none
        raise BuildError(
            f"{spec.file} network",
            found=f"{library.name} cannot start: {log.first}",
            wanted="a CUDA driver that this TensorRT can use",
            todo="compare the driver's version (nvidia-smi) with TensorRT's support matrix",
            details=log.text,
        ) from error


def _parse(spec: Spec, library: Library, network: Any, log: Log, onnx: Path) -> None:
    parser = library.module.OnnxParser(network, log.logger)
    if parser.parse_from_file(str(onnx)):
        return
    errors = [parser.get_error(place) for place in range(parser.num_errors)]
    nodes = [f"{e.node_operator()} {e.node_name()}".rstrip() for e in errors if e.node_operator()]
    blamed = f"the operator {nodes[0]}" if nodes else onnx.name
    raise BuildError(
        f"{spec.file} network",
        found=f"{library.name} cannot take {blamed}",
        wanted="operators and types that TensorRT supports",
        todo="see the list of supported operators, or choose another variant",
        details=log.text,
    )


def _add_profile(spec: Spec, builder: Any, config: Any, ranges: Profile) -> Any:
    profile = builder.create_optimization_profile()
    for name, shapes in ranges.items():
        profile.set_shape(name, shapes.min, shapes.opt, shapes.max)
    if config.add_optimization_profile(profile) < 0:
        described = ", ".join(f"{name} {s.min} to {s.max}" for name, s in ranges.items())
        raise BuildError(
            f"{spec.file} serving.dynamic_batching",
            found=f"TensorRT takes no profile of {described}",
            wanted="1 <= preferred batch size <= max_batch_size, and min <= warm <= max",
        )
    return profile


def _configure(spec: Spec, library: Library, config: Any, file: str) -> None:
    trt, settings = library.module, spec.model.optimize.tensorrt
    if settings.memory_limit is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.memory_limit)
    if library.gpu is None:
        # Flags of `tensorrt` that this library does not have are for the GPU machine's build.
        config.num_compute_capabilities = len(library.capabilities)
        for place, capability in enumerate(library.capabilities):
            config.set_compute_capability(capability, place)
        return
    if settings.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if settings.hardware_compatibility != "none":
        level = settings.hardware_compatibility.upper()
        levels = trt.HardwareCompatibilityLevel.__members__
        if level not in levels:
            raise BuildError(
                f"{spec.file} optimize.tensorrt.hardware_compatibility",
                found=f"{library.name} has no {settings.hardware_compatibility}",
                wanted=f"one of {', '.join(name.lower() for name in levels)}",
                todo="install a newer TensorRT, or change it",
            )
        config.hardware_compatibility_level = levels[level]


def _timing_cache(config: Any, timing: Path) -> Any:
    """Kernel times of earlier builds, to read and extend; times of another GPU or version are dropped."""
    kept = timing.read_bytes() if timing.is_file() else b""
    with _undeprecated():
        for content in (kept, b""):
            cache = config.create_timing_cache(content)
            if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False):
                return cache
    return None


@contextlib.contextmanager
def _undeprecated() -> Iterator[None]:
    """Ignore deprecation warnings: TensorRT-RTX, which measures no kernels, calls the timing cache deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _capabilities(config: Any, library: Library) -> list[str]:
    if library.gpu is not None:
        return []
    numbers = map(int, map(config.get_compute_capability, range(config.num_compute_capabilities)))
    return [f"{number // 10}.{number % 10}" for number in numbers]
