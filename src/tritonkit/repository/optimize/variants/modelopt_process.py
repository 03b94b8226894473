"""Quantize an ONNX file with NVIDIA's Model Optimizer, in a process of its own.

Model Optimizer replaces functions of onnxruntime.quantization for its process, and writes next to the file that it
reads. `python -m tritonkit.repository.optimize.variants.modelopt_process FOLDER` reads settings.json, network.onnx and
batch-*.npz in the folder and writes quantized.onnx, or refusal.json with the parts of an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need

__all__ = ["NETWORK", "QUANTIZED", "REFUSAL", "SETTINGS", "main"]

SETTINGS, NETWORK, QUANTIZED, REFUSAL = "settings.json", "network.onnx", "quantized.onnx", "refusal.json"


class _Batches:
    """Calibration data as Model Optimizer reads it (its CalibrationDataProvider, for batches of any shape)."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self.rewind()

    def rewind(self) -> None:
        """Begin again with the first batch."""
        self._left: Iterator[Path] = iter(self._files)

    def get_next(self) -> dict[str, Any] | None:
        """The next batch; None after the last one."""
        file = next(self._left, None)
        return None if file is None else _read(file)

    def get_first(self) -> dict[str, Any]:
        """The first batch, whichever is next."""
        return _read(self._files[0])


def _read(file: Path) -> dict[str, Any]:
    import numpy as np

    names = json.loads(file.with_suffix(".json").read_text())
    with np.load(file) as arrays:
        return {name: arrays[place] for name, place in zip(names, arrays.files, strict=True)}


def main(folder: Path) -> None:
    """Quantize the network in a folder."""
    try:
        quantize = need("modelopt.onnx.quantization", "modelopt").quantize
    except BuildError as error:
        (folder / REFUSAL).write_text(json.dumps({"where": error.where, "found": error.found, "todo": error.todo}))
        return
    settings = json.loads((folder / SETTINGS).read_text())
    quantize(
        str(folder / NETWORK),
        calibration_data_reader=_Batches(sorted(folder.glob("batch-*.npz"))),
        calibration_eps=["cpu"],
        output_path=str(folder / QUANTIZED),
        log_level="ERROR",
        **settings,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
