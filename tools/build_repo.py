"""Generate the model repository: `python tools/build_repo.py [MODEL ...]`, the same as `tritonkit build`.

Works with any Python 3: it goes on with the project's own environment where there is one.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"


def main() -> None:
    """Run `tritonkit build` with this command's arguments."""
    if Path(sys.prefix) != ENVIRONMENT and (ENVIRONMENT / "bin" / "python").exists():
        python = str(ENVIRONMENT / "bin" / "python")
        os.execv(python, [python, __file__, *sys.argv[1:]])  # noqa: S606  no shell, fixed program
    try:
        from tritonkit.cli import main as tritonkit
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: run `make setup` in {ROOT} first")
    tritonkit(["build", *sys.argv[1:]])


if __name__ == "__main__":
    main()
