"""`tritonkit reload`: a running server takes the newest versions."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.options import Address, AllowPlaintext, AsJson, KeyFile, models_argument, project_or_here, read_key
from tritonkit.cli.output import print_json, print_table
from tritonkit.errors import ServerUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.client.reload import Reloaded

__all__ = ["command"]


def command(
    models: Annotated[list[str] | None, models_argument("Models, ensembles with their parts; all by default.")] = None,
    address: Address = "127.0.0.1:8001",
    key_file: KeyFile = None,
    allow_plaintext_credentials: AllowPlaintext = False,
    timeout_s: Annotated[float, typer.Option("--timeout-s", help="Seconds that each model may take to load.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Make running servers load the newest versions; the old ones answer until those are warm.

    Several servers, as `a:8001,b:8001` or every address of a name as `dns:HOST:PORT`, take them one after the other.

    Example: tritonkit reload digits --key-file deploy/docker/keys/admin-key
    """
    from tritonkit.client import Client
    from tritonkit.client.reload import reload_models

    done = []
    _refuse_replicas(addresses := _servers(address))
    for server in addresses:
        with Client(
            server,
            timeout_s=min(30.0, timeout_s),
            admin_key=read_key(key_file, server),
            allow_plaintext_credentials=allow_plaintext_credentials,
        ) as client:
            done.append((server, reload_models(client, models or (), timeout_s=timeout_s)))
    if as_json:
        facts = [_facts(server, reloaded) for server, reloaded in done]
        print_json(facts[0] if len(facts) == 1 else {"servers": facts})
        return
    for server, reloaded in done:
        _print(server, reloaded)


def _refuse_replicas(addresses: Sequence[str]) -> None:
    """Refuse replicas of a stack: each serves a copy of the repository, which a build does not change."""
    from tritonkit.operate.stack import read_state

    state = read_state(project_or_here(None))
    replicas = {part["address"] for part in state["parts"]} if state else set()
    for server in addresses:
        if server in replicas:
            raise UsageError(
                f"--address {server}",
                found="a replica of the stack, which serves a copy of the repository",
                wanted="a server that reads the repository itself",
                todo="tritonkit release MODEL",
            )


def _servers(address: str) -> list[str]:
    """The addresses of the servers.

    Raises:
        ServerUnavailable: a name has no address.
    """
    servers = []
    for one in filter(None, address.split(",")):
        if not one.startswith("dns:"):
            servers.append(one)
            continue
        host, _, port = one.removeprefix("dns:").removeprefix("///").rpartition(":")
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ServerUnavailable(
                one,
                found=f"no address: {getattr(error, 'strerror', None) or error}",
                wanted="dns:HOST:PORT",
                todo="start the servers first, for example with: docker compose up --wait",
            ) from None
        hosts = sorted({str(place[4][0]) for place in places})
        servers += [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in hosts]
    return servers


def _facts(address: str, done: Sequence[Reloaded]) -> dict[str, Any]:
    models = [
        {"model": m.model, "before": m.before, "now": m.now, "outcome": m.outcome, "seconds": round(m.seconds, 3)}
        for m in done
    ]
    return {"address": address, "models": models}


def _print(address: str, done: Sequence[Reloaded]) -> None:
    rows = [
        [m.model, " ".join(m.before) or "none", " ".join(m.now) or "none", m.outcome, f"{m.seconds:.2f} s"]
        for m in done
    ]
    print_table(f"Reloaded at {address}", ["model", "before", "now", "outcome", "time"], rows)
