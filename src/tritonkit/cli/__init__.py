"""The command line: `app` with its table of commands, what commands share, and the process that watches them.

The commands themselves lie in `commands/` of their tower; each is imported when it is run.
"""

from __future__ import annotations

from tritonkit.cli.app import app, main

__all__ = ["app", "main"]
