"""The steps `models` and `variants`: the networks of `make gpu`, built by tritonkit as a user's are.

`python -m bench.gpu.models FOLDER --target gpu` writes FOLDER/models/NAME/ and FOLDER/repository. A bundle brings
both, so that the machine with the GPU builds nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from bench.gpu.networks import encoder, mlp, resnet, write
from bench.gpu.sizes import ENCODER, FP16, FP32, FULL, INT8, MLP, SMALL, TF32
from bench.programs import ROOT
from tritonkit.repository.render import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.gpu.sizes import Size

__all__ = ["MODELS", "VARIANTS", "build"]


@dataclass(frozen=True)
class Model:
    """A model.

    Args:
        dtype: the type in which the file computes.
        most: the largest batch.
        variant: the variant that target gpu serves; target cpu serves the file as it is.
    """

    dtype: str
    most: int = 64
    variant: str = "onnx-fp32"


MODELS = {
    FP32: Model("float32"),
    FP16: Model("float16"),
    ENCODER: Model("float16"),
    MLP: Model("float32", most=256),
}
"""Models that the goals and the tests in tests/gpu need."""
VARIANTS = {TF32: Model("float32", variant="onnx-tf32"), INT8: Model("int8")}
"""Further variants of ResNet-50, for the table of variants."""
_FREE = "  free_axes: {{length: {{min: 2, max: {most}, pad: {{input_ids: 0, attention_mask: 0}}}}}}\n"
_SPEC = """name: {name}
network:
  onnx: model.onnx
{free}serving:
  variant: {variant}
  max_batch_size: {batch}
  dynamic_batching: {{max_queue_delay: 0ms}}
"""


def build(folder: Path, target: Target, size: Size, names: Sequence[str]) -> dict[str, str]:
    """Write the specs and the networks, and build them into the repository; the models that failed, with the reason."""
    from tritonkit.repository.pipeline import build_repository

    for name in names:
        model, place = (MODELS | VARIANTS)[name], folder / "models" / name
        _write_network(name, model.dtype, size, place / "model.onnx")
        free = _FREE.format(most=size.most) if name == ENCODER else ""
        variant = model.variant if target == "gpu" else "onnx-fp32"
        (place / "model.yaml").write_text(_SPEC.format(name=name, free=free, variant=variant, batch=model.most))
        shutil.rmtree(folder / "repository" / name, ignore_errors=True)
    backends = folder / "python_backends"
    if not backends.exists():
        backends.symlink_to(ROOT / "python_backends")
    built = build_repository(folder, names, target=target, out=folder / "repository", keep_going=True)
    return {name: str(error) for name, error in built.failed.items()}


def _write_network(name: str, dtype: str, size: Size, file: Path) -> None:
    if dtype == "int8":
        from bench.gpu.quantized import write_int8

        write_int8(size, file)
    else:
        write({"resnet50": resnet, "encoder": encoder, "mlp": mlp}[name.partition("_")[0]](dtype, size), file)


def main() -> int:
    """Build models for the target; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", choices=get_args(Target), default="gpu")
    parser.add_argument("--small", action="store_true", help="the sizes of a rehearsal")
    parser.add_argument("--variants", action="store_true", help="the further variants of ResNet-50, and nothing else")
    options = parser.parse_args()
    names = tuple(VARIANTS if options.variants else MODELS)
    failed = build(options.folder, options.target, SMALL if options.small else FULL, names)
    for name, reason in failed.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
