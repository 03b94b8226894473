"""Triton's gRPC endpoint as bytes: messages, and the HTTP/2 connections that carry them.

`request` writes and `answer` reads inference messages, `messages` every other one; `transport` is the interface
of carriers, and `http2` is our own one. Used by `serve` and `client`.
"""

__all__: list[str] = []
