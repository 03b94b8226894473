"""Models and servers in memory, for tests of programs that call models; `tritonkit.testing` is their public name."""

from tritonkit.client.testing.fake import FakeModel, Given
from tritonkit.client.testing.memory import AsyncMemoryTransport, MemoryTransport

__all__ = ["AsyncMemoryTransport", "FakeModel", "Given", "MemoryTransport"]
