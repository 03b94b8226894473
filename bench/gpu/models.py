"""The step `models`: the networks of `make gpu`, built by tritonkit as a user's are.

`python -m bench.gpu.models FOLDER --target gpu` writes FOLDER/models/NAME/ and FOLDER/repository. A bundle brings
both, so that the machine with the GPU builds nothing.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from bench.gpu.networks import FULL, SMALL, encoder, mlp, resnet, write
from bench.programs import ROOT

if TYPE_CHECKING:
    from bench.gpu.networks import Size

__all__ = ["ENCODER", "FP16", "FP32", "MLP", "build"]

FP32, FP16, ENCODER, MLP = "resnet50_fp32", "resnet50_fp16", "encoder_fp16", "mlp_fp32"
MOST = {FP32: 64, FP16: 64, ENCODER: 64, MLP: 256}
"""The largest batch of each model."""
_FREE = "  free_axes: {{length: {{min: 2, max: {most}, pad: {{input_ids: 0, attention_mask: 0}}}}}}\n"
_SPEC = """name: {name}
network:
  onnx: model.onnx
{free}serving:
  max_batch_size: {batch}
  dynamic_batching: {{max_queue_delay: 0ms}}
"""


def build(folder: Path, target: str, size: Size) -> None:
    """Write the specs and the networks, and build the repository."""
    from tritonkit.repository.pipeline import build_repository

    for name, batch in MOST.items():
        model = folder / "models" / name
        dtype = "float16" if name.endswith("fp16") else "float32"
        make = {"resnet50": resnet, "encoder": encoder, "mlp": mlp}[name.partition("_")[0]]
        write(make(dtype, size), model / "model.onnx")
        free = _FREE.format(most=size.most) if name == ENCODER else ""
        (model / "model.yaml").write_text(_SPEC.format(name=name, free=free, batch=batch))
    backends = folder / "python_backends"
    if not backends.exists():
        backends.symlink_to(ROOT / "python_backends")
    built = build_repository(folder, target=target)
    if (repository := folder / "repository").exists():
        shutil.rmtree(repository)
    built.path.rename(repository)


def main() -> None:
    """Build them for the target."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--small", action="store_true", help="the sizes of a rehearsal")
    options = parser.parse_args()
    build(options.folder, options.target, SMALL if options.small else FULL)


if __name__ == "__main__":
    main()
