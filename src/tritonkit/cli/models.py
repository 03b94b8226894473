"""`tritonkit models`: what a server serves."""

from __future__ import annotations

from dataclasses import asdict

from tritonkit.cli.options import Address, AsJson, Timeout
from tritonkit.cli.output import print_json, print_table

__all__ = ["command"]


def command(
    address: Address = "127.0.0.1:8001", timeout_s: Timeout = 5.0, as_json: AsJson = False
) -> None:
    """List the models of a server: versions, ready or why not.

    Example: tritonkit models --json
    """
    from tritonkit.client import Client

    with Client(address, timeout_s=timeout_s) as client:
        statuses = client.models()
    if as_json:
        print_json({"address": address, "models": [asdict(status) for status in statuses]})
        return
    rows = [
        [s.name, s.version or "-", "ready" if s.ready else s.state.lower(), s.reason]
        for s in statuses
    ]
    print_table(f"Models at {address}", ["model", "version", "state", "reason"], rows)
