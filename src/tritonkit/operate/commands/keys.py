"""`tritonkit keys`: who may call through the gateway."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from tritonkit.cli.completion import complete_model
from tritonkit.cli.options import AsJson, GatewayFolder, Root, gateway_folder
from tritonkit.cli.output import note, print_json, print_line, print_table

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Add, list or revoke the API keys of callers; only their hashes are stored."
)

Name = Annotated[str, typer.Argument(help="Owner of the key, as named in the audit log.")]


@app.command("add")
def add(
    name: Name,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            autocompletion=complete_model,
            help="A model the key may use; may be repeated. All by default.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second that the key may send; no limit by default.")
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(help="Requests allowed in one burst (the bucket's size); by default a tenth of a second's."),
    ] = None,
    gateway: GatewayFolder = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Make a key and print it; the key itself is not stored. A running gateway accepts it immediately.

    Example: tritonkit keys add alice --model digits --rate 50 > alice.key
    """
    from dataclasses import asdict

    from tritonkit.operate.keys import EVERY, FILE, add_key

    made, key = add_key(gateway_folder(root, gateway) / FILE, name, models or (EVERY,), rate, burst)
    if as_json:
        print_json(asdict(made) | {"key": key})
    else:
        print_line(key)
        note(f"the key of {name}, which is shown this once; callers send it as x-api-key")


@app.command("list")
def show(gateway: GatewayFolder = None, as_json: AsJson = False, root: Root = None) -> None:
    """List names, models and rates; the keys themselves are not stored.

    Example: tritonkit keys list
    """
    from dataclasses import asdict

    from tritonkit.operate.keys import FILE, read_keys

    keys = read_keys(gateway_folder(root, gateway) / FILE)
    if as_json:
        print_json([asdict(key) for key in keys])
        return
    print_table(
        "keys of the gateway",
        ("key", "models", "requests/s", "burst", "made"),
        [
            (
                key.name,
                ", ".join(key.models),
                "" if key.rate_per_s is None else f"{key.rate_per_s:g}",
                "" if key.rate_per_s is None else str(key.burst),
                f"{datetime.datetime.fromtimestamp(key.created, datetime.UTC):%Y-%m-%d %H:%M}",
            )
            for key in keys
        ],
    )


@app.command("revoke")
def revoke(name: Name, gateway: GatewayFolder = None, root: Root = None) -> None:
    """Revoke a key. A running gateway refuses it immediately.

    Example: tritonkit keys revoke alice
    """
    from tritonkit.operate.keys import FILE, revoke_key

    revoke_key(gateway_folder(root, gateway) / FILE, name)
    note(f"the key of {name} is accepted no more")
