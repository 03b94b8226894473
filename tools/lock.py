"""Write `python_backends/requirements*.lock`: the newest versions that the requirements allow, with PyPI's hashes.

`make lock` runs it. uv resolves for all machines and Pythons together; it is installed in a temporary environment. The
environment for GPUs gets the versions of the one for CPUs wherever both have a package.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "python_backends"
OLDEST = "3.11"
"""The oldest Python of the server's environment."""

_OPTIONS = (
    "--universal",
    "--python-version",
    OLDEST,
    "--only-binary",
    ":all:",
    "--generate-hashes",
    "--upgrade",
    "--no-annotate",
    "--quiet",
    "--custom-compile-command",
    "make lock",
)


def compilation(uv: Path, name: str, *more: str) -> list[str]:
    """The command that writes `NAME.lock` from `NAME.txt`."""
    return [str(uv), "pip", "compile", f"{name}.txt", "--output-file", f"{name}.lock", *_OPTIONS, *more]


def main() -> int:
    """Resolve, and write the locks; 0, or the exit code of what failed."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        binaries = Path(folder) / "bin"
        uv = binaries / "uv"
        for command in (
            [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"],
            compilation(uv, "requirements"),
            compilation(uv, "requirements-gpu", "--constraint", "requirements.lock"),
        ):
            if code := subprocess.run(command, cwd=FOLDER, check=False).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
