"""`tritonkit models`: what a server serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tritonkit.cli.options import Address, AllowPlaintext, AsJson, KeyFile, Timeout, project_or_here, read_key
from tritonkit.cli.output import print_json, print_table

if TYPE_CHECKING:
    from tritonkit.client import ModelStatus

__all__ = ["command"]

_NOT_LOADED = "this server does not load it"


def command(
    address: Address = "127.0.0.1:8001",
    key_file: KeyFile = None,
    allow_plaintext_credentials: AllowPlaintext = False,
    timeout_s: Timeout = 5.0,
    as_json: AsJson = False,
) -> None:
    """List the models of a server: versions, ready or why not.

    Example: tritonkit models --json
    """
    from tritonkit.client import Client

    with Client(
        address,
        timeout_s=timeout_s,
        admin_key=read_key(key_file, address),
        allow_plaintext_credentials=allow_plaintext_credentials,
    ) as client:
        statuses = _with_reasons(client.models(), address)
    if as_json:
        print_json({"address": address, "models": [asdict(status) for status in statuses]})
        return
    rows = [[s.name, s.version or "-", "ready" if s.ready else s.state.lower(), _why(s)] for s in statuses]
    print_table(f"Models at {address}", ["model", "version", "state", "reason"], rows)


def _with_reasons(statuses: Sequence[ModelStatus], address: str) -> list[ModelStatus]:
    """The models, with this project's reasons for those that its server did not load; Triton does not know them."""
    from tritonkit.client import ModelStatus
    from tritonkit.serve.runs import find_failed

    failed = find_failed(project_or_here(None), address)
    listed = {status.name for status in statuses}
    absent = [
        ModelStatus(name, "", "UNAVAILABLE", ready=False, reason=reason)
        for name, reason in failed.items()
        if name not in listed
    ]
    return [
        status
        if status.ready or status.reason or status.name not in failed
        else replace(status, state="UNAVAILABLE", reason=failed[status.name])
        for status in [*statuses, *absent]
    ]


def _why(status: ModelStatus) -> str:
    """The first line of the reason why a model is not ready; --json has the rest."""
    if status.state == "UNLOADED" and not status.reason:
        return _NOT_LOADED
    return next(iter(status.reason.splitlines()), "")
