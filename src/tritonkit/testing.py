"""Tools to test programs that call models: served models made of functions, without a server.

from tritonkit import Client
from tritonkit.testing import FakeModel, MemoryTransport

model = FakeModel(inputs={"x": ("FP32", [2])}, outputs={"y": ("FP32", [2])}, function=double)
with Client(transport=MemoryTransport({"doubling": model})) as client: ...
"""

from tritonkit.client.testing import AsyncMemoryTransport, FakeModel, Given, MemoryTransport

__all__ = ["AsyncMemoryTransport", "FakeModel", "Given", "MemoryTransport"]
