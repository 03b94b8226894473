"""Read files of tree libraries and write them as ONNX: the room behind `tritonkit new --tree`.

The files are read here rather than by the libraries and their converters. Converters need the trained object, and so
the library and often a pickle; onnxmltools refuses XGBoost's categories, and rounds LightGBM's double thresholds to
float32, which moves rows to other leaves. The formats are short, and every answer is compared with the library's.
"""

from tritonkit.repository.trees.forest import Forest, Tree, in_float32
from tritonkit.repository.trees.proof import Proof, proven
from tritonkit.repository.trees.reading import read_forest
from tritonkit.repository.trees.to_onnx import onnx_of

__all__ = ["Forest", "Proof", "Tree", "in_float32", "onnx_of", "proven", "read_forest"]
