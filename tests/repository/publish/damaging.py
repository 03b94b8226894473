"""Damage to a file by a disk or a copy."""

from pathlib import Path

__all__ = ["flip"]


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x40
    file.write_bytes(data)
