"""Puts the files that run inside Triton on the path, as Triton's Python stub does."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2] / "python_backends"

sys.path[:0] = [
    str(ROOT / "backends"),
    str(ROOT / "backends" / "llm"),
    str(ROOT / "backends" / "onnxruntime"),
    str(ROOT / "backends" / "openvino"),
    str(ROOT / "backends" / "pytorch"),
    str(ROOT / "map"),
    str(ROOT / "steps"),
    *(str(step.parent) for step in ROOT.glob("steps/*/step.yaml")),
]
