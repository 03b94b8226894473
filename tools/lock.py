"""Write `python_backends/requirements.lock`: the newest versions that requirements.txt allows, with PyPI's hashes.

`make lock` runs it. uv resolves for all machines and Pythons together; it is installed in a temporary environment.
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


def main() -> int:
    """Resolve, and write the lock; 0, or the exit code of what failed."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        binaries = Path(folder) / "bin"
        for command in (
            [binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"],
            [
                binaries / "uv",
                "pip",
                "compile",
                "requirements.txt",
                "--output-file",
                "requirements.lock",
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
            ],
        ):
            if code := subprocess.run(command, cwd=FOLDER, check=False).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
