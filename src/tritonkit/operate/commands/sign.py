"""`tritonkit sign`: a signature over everything a repository holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson, Repository, Root, project_folder
from tritonkit.cli.output import byte_bar, note, print_json
from tritonkit.errors import UsageError

__all__ = ["command"]


def command(
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The private key that signs.")] = None,
    new_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Make a pair of keys and sign nothing: the private key in FILE, the public key in FILE.pub.",
        ),
    ] = None,
    repository: Repository = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Sign the hashes of all files of all models; `tritonkit verify --public-key` checks them.

    The signature is `signature.json` in the repository. It is made only if the repository is as it was published.

    Example: tritonkit sign --key ~/tritonkit-key
    """
    if new_key is not None and key is None:
        _make(new_key, as_json)
    elif key is not None and new_key is None:
        _sign((repository or project_folder(root) / "model_repository").resolve(), key, as_json)
    else:
        raise UsageError("sign", found="no key is named, or two", wanted="--key FILE or --new-key FILE")


def _make(private: Path, as_json: bool) -> None:
    from tritonkit.operate.store.keys import new_signing_key

    public = new_signing_key(private)
    if as_json:
        print_json({"private_key": str(private), "public_key": str(public)})
    note(f"{private}: the private key, for signing; {public}: the public key, for verifying")


def _sign(folder: Path, key: Path, as_json: bool) -> None:
    from tritonkit.cli.started import recovered
    from tritonkit.operate.store import sign
    from tritonkit.operate.store.keys import read_signing_key
    from tritonkit.operate.store.signature import FILE

    signing = read_signing_key(key)
    with byte_bar("hashing") as shown:
        made = sign(recovered(folder), signing, progress=shown)
    files = sum(len(hashes) for hashes in made.models.values())
    if as_json:
        print_json({"signature": str(folder / FILE), "key": made.key, "models": sorted(made.models), "files": files})
    note(f"{folder / FILE}: {files} files of {len(made.models)} models, signed by the key {made.key}")
