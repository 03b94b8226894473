"""What a run leaves for other programs of its owner: where it answers, and the key to change it.

`<root>/.tritonkit/run/TIME-XXXX/` holds `endpoint.json` and `admin-key` while the server runs, both for
its owner alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.serve.core.keys import write_private
from tritonkit.serve.run_dir import is_owned, runs_folder

if TYPE_CHECKING:
    from tritonkit.serve.values import Endpoint

__all__ = ["KEY_FILE", "find_key_file", "write_run"]

KEY_FILE = "admin-key"
_ENDPOINT_FILE = "endpoint.json"


def write_run(folder: Path, endpoint: Endpoint) -> None:
    """Say where the server of this run answers; its key goes into a file beside."""
    facts = {
        "grpc": endpoint.grpc, "http": endpoint.http, "metrics": endpoint.metrics,
        "models": endpoint.models, "version": endpoint.version,
    }  # fmt: skip
    write_private(folder / _ENDPOINT_FILE, json.dumps(facts))
    write_private(folder / KEY_FILE, f"{endpoint.admin_key}\n")


def find_key_file(root: Path, address: str) -> Path | None:
    """The key file of the running server of this project at a gRPC address; None where there is none.

    Args:
        root: the project.
        address: `host:port`; `localhost` stands for 127.0.0.1.
    """
    wanted = address.removeprefix("grpc://").replace("localhost:", "127.0.0.1:")
    runs = runs_folder(root)
    for folder in sorted(runs.iterdir(), reverse=True) if runs.is_dir() else ():
        try:
            facts = json.loads((folder / _ENDPOINT_FILE).read_text())
        except (OSError, ValueError):
            continue
        if facts.get("grpc") == wanted and is_owned(folder) and (folder / KEY_FILE).is_file():
            return folder / KEY_FILE
    return None
