"""Code shared by `tritonkit serve` and the container's `entry.py`: locking, limiting and running a server.

Standard library only, and only relative imports: the server's image holds a copy of this folder and
nothing else of tritonkit. `tests/test_structure.py` holds that.
"""

from __future__ import annotations

__all__: list[str] = []
