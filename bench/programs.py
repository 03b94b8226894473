"""The bench's own programs, each in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tritonkit.errors import ClientError

__all__ = ["output"]

ROOT = Path(__file__).resolve().parent.parent


def output(python: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Run one of this package's programs in its own process and read the JSON it prints."""
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [str(python), "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": path},
    )
    if done.returncode != 0:
        raise ClientError(
            f"{module} {' '.join(arguments)}",
            found=f"it ended with exit code {done.returncode}",
            details=done.stderr[-2000:],
        )
    output: dict[str, Any] = json.loads(done.stdout)
    return output
