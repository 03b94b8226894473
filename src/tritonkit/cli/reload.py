"""`tritonkit reload`: a running server takes the newest versions."""

from __future__ import annotations

from typing import Annotated

import typer

from tritonkit.cli.options import (
    Address,
    AllowPlaintext,
    AsJson,
    KeyFile,
    models_argument,
    read_key,
)
from tritonkit.cli.output import print_json, print_table

__all__ = ["command"]


def command(
    models: Annotated[
        list[str] | None, models_argument("Models, ensembles with their parts; all by default.")
    ] = None,
    address: Address = "127.0.0.1:8001",
    key_file: KeyFile = None,
    allow_plaintext_credentials: AllowPlaintext = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", help="Seconds that each model may take to load.")
    ] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Make a running server load the newest versions; the old ones answer until those are warm.

    Example: tritonkit reload digits --key-file deploy/docker/keys/admin-key
    """
    from tritonkit.client import Client
    from tritonkit.client.reload import reload_models

    with Client(
        address,
        timeout_s=min(30.0, timeout_s),
        admin_key=read_key(key_file, address),
        allow_plaintext_credentials=allow_plaintext_credentials,
    ) as client:
        done = reload_models(client, models or (), timeout_s=timeout_s)
    if as_json:
        facts = [
            {"model": m.model, "before": m.before, "now": m.now, "seconds": round(m.seconds, 3)}
            for m in done
        ]
        print_json({"address": address, "models": facts})
        return
    rows = [
        [
            m.model,
            " ".join(m.before) or "none",
            " ".join(m.now) or "none",
            "new version" if m.changed else "unchanged",
            f"{m.seconds:.2f} s",
        ]
        for m in done
    ]
    print_table(f"Reloaded at {address}", ["model", "before", "now", "outcome", "time"], rows)
