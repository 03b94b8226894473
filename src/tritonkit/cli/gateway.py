"""`tritonkit gateway check`: whether a gateway could start with the files as they are now."""

from __future__ import annotations

import typer

from tritonkit.cli.keys import Folder, gateway_folder
from tritonkit.cli.options import AsJson, Root, project_folder
from tritonkit.cli.output import note, print_json

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The gateway's files.")


@app.callback()
def _group() -> None:
    """The gateway's files."""


@app.command("check")
def check(gateway: Folder = None, as_json: AsJson = False, root: Root = None) -> None:
    """Check gateway.yaml, keys and certificates, and let Envoy check what is made from them; nothing is written.

    Example: tritonkit gateway check
    """
    from tritonkit.operate import certificates, keys
    from tritonkit.operate.gateway import Places, read_gateway
    from tritonkit.operate.gateway.render import validate
    from tritonkit.operate.stack.companions import no_envoy
    from tritonkit.serve.install import find_server

    folder = gateway_folder(root, gateway).resolve()
    spec = read_gateway(folder)
    known = keys.read_keys(folder / keys.FILE)
    certificate = certificates.check_pair(folder / spec.tls.certificate, folder / spec.tls.key)
    envoy = find_server(project_folder(root) if gateway is None else None).envoy
    if envoy is None:
        raise no_envoy()
    unused = folder / "unused"
    validate(spec, Places(folder, unused, unused, None, spec.port), known, (), (), envoy)
    if as_json:
        print_json({
            "gateway": str(folder), "address": f"{spec.host}:{spec.port}", "keys": [key.name for key in known],
            "tokens": spec.jwt is not None, "requests_per_replica": spec.limits.requests_per_replica,
            "names": certificate.names, "days_left": round(certificate.days_left(), 2),
        })  # fmt: skip
        return
    callers = f"{len(known)} key{'' if len(known) == 1 else 's'}{' and tokens' if spec.jwt else ''}"
    note(
        f"{folder}: Envoy takes it; {spec.host}:{spec.port}, {callers}, a certificate for"
        f" {', '.join(certificate.names)} until {certificate.ends:%Y-%m-%d},"
        f" {spec.limits.requests_per_replica} requests for each replica at a time"
    )
