"""The model of TensorRT-LLM's LLM API in NVIDIA's image, which reads the model.yaml next to this file."""

import importlib.util
import os
import sys
from pathlib import Path

_FOLDER = Path(os.environ.get("TRITONKIT_LLMAPI", "/app/all_models/llmapi/tensorrt_llm/1"))
_FILE = _FOLDER / "model.py"
if not _FILE.is_file():
    raise ImportError(
        f"{_FILE}: no such file; wanted an image of Triton with TensorRT-LLM (its tag ends in"
        " -trtllm-python-py3), or TRITONKIT_LLMAPI=FOLDER with its model.py"
    )
sys.path.insert(0, str(_FOLDER))  # for its helpers.py
# Not as `model`: that is this file's name.
_SPEC = importlib.util.spec_from_file_location("tensorrt_llm_llmapi", _FILE)
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _MODULE
_SPEC.loader.exec_module(_MODULE)
TritonPythonModel = _MODULE.TritonPythonModel
