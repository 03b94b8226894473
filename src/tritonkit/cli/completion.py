"""Values that a shell completes: models of the project, variants, and addresses of servers that run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tritonkit.errors import TritonkitError

__all__ = ["complete_address", "complete_model", "complete_variants"]


def complete_model(incomplete: str) -> list[str]:
    """Models of `models/`, networks in their pipelines, and models of `model_repository/`, in the project that the
    working folder is in."""
    from tritonkit.repository.modelspec import child_names

    names: set[str] = set()
    for project in _project():
        names |= {file.parent.name for file in project.glob("model_repository/*/config.pbtxt")}
        for file in project.glob("models/*/model.yaml"):
            names.add(file.parent.name)
            if file.parent.name.startswith(incomplete) or incomplete.startswith(f"{file.parent.name}_"):
                names.update(child_names(file.parent))
    return sorted(name for name in names if name.startswith(incomplete))


def complete_variants(incomplete: str) -> list[str]:
    """Names of variants, `spec` and `all`; after a comma a further one."""
    from tritonkit.repository.optimize.variants import variant_names

    before, comma, last = incomplete.rpartition(",")
    names = ("spec", "all", *variant_names())
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete_address(incomplete: str) -> list[str]:
    """gRPC addresses of this project's servers that run, and of the gateway before them."""
    from tritonkit.operate.stack.state import read_state
    from tritonkit.serve.runs import find_runs

    addresses: list[str] = []
    with contextlib.suppress(TritonkitError, OSError):
        for project in _project():
            addresses += [run["grpc"] for run in find_runs(project)]
            if (state := read_state(project)) is not None:
                addresses.append(f"grpcs://{state['gateway']}")
    return [address for address in dict.fromkeys(addresses) if address.startswith(incomplete)]


def _project() -> Iterator[Path]:
    """The nearest folder with models, from the working folder upward; yields nothing if there is none."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "models").is_dir() or (folder / "model_repository").is_dir():
            yield folder
            return
