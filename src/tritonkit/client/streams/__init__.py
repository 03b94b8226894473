"""Decoupled models, which answer once or many times, and models that keep state between calls."""

from tritonkit.client.streams.sequence import AsyncSequence, Sequence
from tritonkit.client.streams.stream import AsyncStream, Stream

__all__ = ["AsyncSequence", "AsyncStream", "Sequence", "Stream"]
