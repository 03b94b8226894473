"""Files of a folder, by path."""

from pathlib import Path

__all__ = ["tree"]


def tree(folder: Path) -> dict[str, bytes]:
    """Path -> content of every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
