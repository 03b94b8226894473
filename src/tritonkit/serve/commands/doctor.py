"""`tritonkit doctor`: what this machine has and lacks."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tritonkit.cli.options import AsJson, Root, project_or_here
from tritonkit.cli.output import print_json, print_table

__all__ = ["command"]


def command(as_json: AsJson = False, root: Root = None) -> None:
    """Check this machine: Python, libpython, glibc, cores, shared memory, server, ports, NVIDIA
    driver, GPUs, CUDA.

    Example: tritonkit doctor --json
    """
    from tritonkit.serve import doctor

    checks = doctor(project_or_here(root))
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        rows = [[check.status, check.name, check.found, check.todo] for check in checks]
        print_table("Doctor", ["", "check", "found", "do"], rows)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(4)
