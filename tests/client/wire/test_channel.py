"""Addresses and metadata, refused before anything is sent."""

from __future__ import annotations

import pytest

from tritonkit.client.wire.channel import ChannelConfig, parse_address
from tritonkit.errors import UsageError


@pytest.mark.parametrize(
    ("address", "target", "tls"),
    [
        ("127.0.0.1:8001", "127.0.0.1:8001", False),
        ("triton:8001", "triton:8001", False),
        ("grpc://triton.example.com:8001/", "triton.example.com:8001", False),
        ("grpcs://triton.example.com:443", "triton.example.com:443", True),
        ("[::1]:8001", "[::1]:8001", False),
    ],
)
def test_addresses(address: str, target: str, tls: bool) -> None:
    """A host and a port, with or without the scheme."""
    parsed = parse_address(address)
    assert (parsed.target, parsed.tls) == (target, tls)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":8001",
        "host:",
        "host:0",
        "host:99999",
        "host:port",
        "::1:8001",
        "a b:1",
        "grpc://",
        "unix:/run/s",
        "host:8001/v2",
        "user@host:1",
        "host:٣",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    """An address without a host or a port is refused."""
    with pytest.raises(UsageError, match="host:port"):
        parse_address(address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000", "https://triton:8000"])
def test_http_is_pointed_to_grpc(address: str) -> None:
    """Triton's other port is a common mistake: the message says which one to use."""
    with pytest.raises(UsageError, match=r"gRPC port \(8001"):
        parse_address(address)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Upper", "a"),
        ("a b", "a"),
        (":path", "a"),
        ("te", "a"),
        ("grpc-timeout", "1S"),
        ("", "a"),
        ("x", "two\nlines"),
        ("x", "ü"),
    ],
)
def test_metadata_that_cannot_travel(name: str, value: str) -> None:
    """Refused by name; a line's end would let one header become two."""
    with pytest.raises(UsageError):
        ChannelConfig("h:1", headers=((name, value),))
