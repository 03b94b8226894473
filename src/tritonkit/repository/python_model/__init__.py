"""Runs a `model.py` for Triton's Python backend in this process, for its unit tests (`tritonkit.testing`)."""

from tritonkit.repository.python_model.model import PythonModel
from tritonkit.repository.python_model.values import PythonAnswer, PythonRequest

__all__ = ["PythonAnswer", "PythonModel", "PythonRequest"]
