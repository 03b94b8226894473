"""Options that several commands share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.completion import complete_address, complete_model
from tritonkit.errors import SpecError, UsageError

if TYPE_CHECKING:
    from tritonkit.operate.store.keys import EncryptionKey

__all__ = [
    "Address",
    "AllowPlaintext",
    "AnyServer",
    "AsJson",
    "EncryptionKeyFile",
    "GatewayFolder",
    "KeyFile",
    "Repository",
    "Root",
    "TargetChoice",
    "Timeout",
    "gateway_folder",
    "models_argument",
    "project_folder",
    "project_or_here",
    "rate_per_s",
    "read_encryption",
    "read_key",
    "refuse",
    "seconds",
]


class TargetChoice(StrEnum):
    """The kind of server that serves the repository of a build."""

    cpu = "cpu"
    gpu = "gpu"
    nvidia = "nvidia"


Root = Annotated[Path | None, typer.Option(help="The project's folder; found upwards from here.")]
Repository = Annotated[Path | None, typer.Option(help="A model repository; model_repository/ by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
AnyServer = Annotated[
    str | None,
    typer.Option(
        "--address",
        autocompletion=complete_address,
        help="gRPC address of a server, host:port; one is started by default.",
    ),
]
Address = Annotated[
    str,
    typer.Option(
        autocompletion=complete_address, help="gRPC address of the server, host:port; with TLS grpcs://host:port."
    ),
]
Timeout = Annotated[float, typer.Option("--timeout-s", help="Seconds to wait for an answer.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        envvar="TRITONKIT_KEY_FILE",
        help="File with the server's admin key; found by itself for a server on this machine.",
    ),
]
AllowPlaintext = Annotated[
    bool,
    typer.Option(
        "--allow-plaintext-credentials",
        help="Send the key without TLS to another machine, where the network can read it.",
    ),
]

EncryptionKeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with the key of encrypted backups (`tritonkit backup --new-key`)."),
]
GatewayFolder = Annotated[
    Path | None, typer.Option("--gateway", help="The gateway's folder; deploy/gateway by default.")
]


def models_argument(help: str) -> Any:  # noqa: A002 - as typer calls it
    """The names of any number of models."""
    return typer.Argument(metavar="[MODEL]...", help=help, autocompletion=complete_model)


def refuse(options: Mapping[str, object], need: str) -> None:
    """Refuse the first of these options that was given."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(option, found="it does not go with the other options", wanted=need)


def seconds(option: str, text: str, least: float = 0.0) -> float:
    """The seconds of a time such as `10s`, `50ms`, `10m` or `2h`, the value of an option.

    Raises:
        UsageError: the text is not a time, or less than `least` seconds.
    """
    from tritonkit.repository.modelspec.units import parse_duration

    try:
        # Minutes are `min` in a spec; on command lines people write `m`, and `h`.
        number, unit = text.strip()[:-1], text.strip()[-1:]
        factor = {"m": 1, "h": 60}.get(unit)
        micros = factor * parse_duration(f"{number}min") if factor else parse_duration(text)
    except ValueError as error:
        raise UsageError(option, found=str(error), wanted="such as 10s or 50ms") from None
    duration_s = micros / 1_000_000
    if duration_s < least:
        raise UsageError(option, found=text, wanted=f"at least {least:g}s")
    return duration_s


def host_and_port(option: str, text: str) -> tuple[str, int]:
    """The host and the port of an address, the value of an option.

    Raises:
        UsageError: the text is not an address.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{option} {text}", found="not an address", wanted="HOST:PORT")
    return host, int(port)


_COMPOSE_KEY = Path("deploy/docker/keys/admin-key")
_LOOPBACK = ("127.0.0.1:", "localhost:", "[::1]:")


def project_folder(root: Path | None) -> Path:
    """The folder that `--root` names, or the project of the working folder."""
    from tritonkit.repository.modelspec import find_root

    return (root or find_root()).resolve()


def project_or_here(root: Path | None) -> Path:
    """The folder that `--root` names, the project of the working folder, or else the working folder.

    Raises:
        UsageError: `--root` names no folder.
    """
    if root is not None:
        if not root.is_dir():
            raise UsageError(f"--root {root}", found="there is no such folder")
        return root.resolve()
    try:
        return project_folder(None)
    except UsageError:
        return Path.cwd()


def read_key(file: Path | None, address: str) -> str | None:
    """The key in a file; without a file, the key of the server at this address, if it runs on this machine.

    `tritonkit serve` and this project's docker compose keep such keys. A key is never sent to another machine unasked.

    Raises:
        UsageError: it cannot be read, is empty, or not one line of ASCII.
    """
    if file is None:
        own = _own_key(address)
        if own is None:
            return None
        file = own
    try:
        key = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not ASCII"
        raise UsageError(f"--key-file {file}", found=f"it cannot be read: {reason}") from None
    if not key or not key.isprintable():
        raise UsageError(f"--key-file {file}", found="no key in it", wanted="the server's admin key, in one line")
    return key


def _own_key(address: str) -> Path | None:
    """The key file of a server of this project, or else of another one of this user, on this machine."""
    if not address.removeprefix("grpc://").startswith(_LOOPBACK):
        return None
    here = Path.cwd()
    for folder in (here, *here.parents):
        if os.access(folder / ".tritonkit" / "run", os.R_OK):
            from tritonkit.serve.runs import find_key_file

            file = find_key_file(folder, address)
            if file is not None:
                return file
        if os.access(folder / _COMPOSE_KEY, os.R_OK):
            return _compose_key()
    from tritonkit.serve.runs import find_own_key_file

    return find_own_key_file(address)


def _compose_key() -> Path | None:
    from tritonkit.repository.modelspec import find_root  # loaded late: it takes longer than a call

    with contextlib.suppress(SpecError, UsageError):
        file = find_root() / _COMPOSE_KEY
        return file if os.access(file, os.R_OK) else None
    return None


def rate_per_s(text: str | None) -> float | None:
    """--rate, as `500` or `500/s`."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("/s"))
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 1e6:
        raise UsageError("--rate", found=text, wanted="requests a second, from 0.01 to 1000000")
    return value


def read_encryption(file: Path | None) -> EncryptionKey | None:
    """The key in a file; None if no file is named."""
    from tritonkit.operate.store.keys import read_encryption_key

    return None if file is None else read_encryption_key(file)


def gateway_folder(root: Path | None, folder: Path | None) -> Path:
    """The folder of a project's gateway."""
    from tritonkit.operate.gateway.render import FOLDER

    return folder if folder is not None else project_folder(root) / FOLDER
