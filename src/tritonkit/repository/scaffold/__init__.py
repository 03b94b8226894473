"""Write a model folder for a network a person already has: `tritonkit new`."""

from tritonkit.repository.scaffold.from_checkpoint import new_from_checkpoint
from tritonkit.repository.scaffold.from_file import new_from_file, new_from_triton
from tritonkit.repository.scaffold.from_hf import new_from_hf
from tritonkit.repository.scaffold.from_keras import new_from_keras
from tritonkit.repository.scaffold.from_onnx import new_from_onnx
from tritonkit.repository.scaffold.from_torch import new_from_torch
from tritonkit.repository.scaffold.from_tree import new_from_tree
from tritonkit.repository.scaffold.inputs import parse_input

__all__ = [
    "new_from_checkpoint",
    "new_from_file",
    "new_from_hf",
    "new_from_keras",
    "new_from_onnx",
    "new_from_torch",
    "new_from_tree",
    "new_from_triton",
    "parse_input",
]
