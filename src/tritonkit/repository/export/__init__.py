"""From a `Spec` to a checked ONNX `Artifact`: trained or loaded, exported, compared with the reference."""

from tritonkit.repository.export.artifact import Artifact, MeasuredQuality, Signature, TensorInfo, sha256_file
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.export.hooks import load_hook

__all__ = ["Artifact", "BuildCache", "MeasuredQuality", "Signature", "TensorInfo", "load_hook", "sha256_file"]
