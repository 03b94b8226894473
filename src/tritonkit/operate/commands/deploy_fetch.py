"""`tritonkit deploy fetch`: a pod's models out of a store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson
from tritonkit.cli.output import byte_bar, note, print_json, print_line

__all__ = ["command"]

_MIB = 1 << 20


def command(
    url: Annotated[str, typer.Option("--from", metavar="URL", help="The store's URL, as in `tritonkit backup`.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="The folder to fill.")],
    as_of: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The latest backup whose ID begins with this; the latest of all by default."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A folder shared with other pods: a file that one has fetched is not fetched again."
        ),
    ] = None,
    cache_mib: Annotated[
        int, typer.Option(metavar="MIB", min=1, help="Largest total size of the files in the cache.")
    ] = 4096,
    as_json: AsJson = False,
) -> None:
    """Make a folder hold the models of a backup and no others, and check every file against its manifest.

    The init container of a pod runs this command for `models: {store: URL}` in values.yaml.

    Example: tritonkit deploy fetch --from s3://bucket/models --to /models
    """
    from tritonkit.operate.deploy.fetch import fetch

    with byte_bar("fetching") as shown:
        done = fetch(url, to.resolve(), as_of=as_of, cache=cache, cache_bytes=cache_mib * _MIB, progress=shown)
    if as_json:
        print_json(asdict(done))
        return
    print_line(f"backup {done.backup}: {', '.join(done.models)}")
    size = f"{done.size_bytes / _MIB:.0f} MiB"
    print_line(f"{size}: fetched in {done.fetch_s:.2f} s, verified in {done.verify_s:.2f} s")
    if cache is not None:
        print_line(f"{done.cached_bytes / _MIB:.0f} MiB of them out of the cache {cache}")
    if done.cache_problem:
        note(f"note: the cache was not used as it could be: {done.cache_problem}")
