"""Tools for tests without a server: of programs that call models, and of a model's own Python.

from tritonkit import Client
from tritonkit.testing import FakeModel, MemoryTransport

model = FakeModel(inputs={"x": ("FP32", [2])}, outputs={"y": ("FP32", [2])}, function=double)
with Client(transport=MemoryTransport({"doubling": model})) as client: ...

from tritonkit.testing import PythonModel

with PythonModel.of_project("digits_clean") as model:
    outputs = model.predict(text=[[b"seven"]])
"""

from tritonkit.client.testing import AsyncMemoryTransport, FakeModel, Given, MemoryTransport
from tritonkit.repository.python_model import PythonAnswer, PythonModel, PythonRequest

__all__ = [
    "AsyncMemoryTransport",
    "FakeModel",
    "Given",
    "MemoryTransport",
    "PythonAnswer",
    "PythonModel",
    "PythonRequest",
]
