"""Old names of packages: `import tritonkit.measure` still works and warns that it is `tritonkit.perf.load` now."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

__all__ = ["MOVED", "find_moved_packages"]

MOVED: Final = {
    "deploy": "operate.deploy",
    "diagnose": "perf.diagnose",
    "export": "repository.export",
    "inspection": "repository.inspection",
    "measure": "perf.load",
    "optimize": "repository.optimize",
    "pipeline": "repository.pipeline",
    "plan": "perf.plan",
    "publish": "repository.publish",
    "render": "repository.render",
    "report": "repository.report",
    "scaffold": "repository.scaffold",
    "simulation": "perf.simulation",
    "spec": "repository.modelspec",
    "tune": "perf.tune",
    "wire": "client.wire",
}
"""Packages of version 0.1.0 and their names since, both below `tritonkit`."""


class _Finder(MetaPathFinder, Loader):
    """Finds the modules below an old name, which are the same objects as those of the new name."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if root == "tritonkit" and name.split(".")[0] in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old, _, below = module.__name__.removeprefix("tritonkit.").partition(".")
        new = ".".join(["tritonkit", MOVED[old], *([below] if below else [])])
        warnings.warn(f"{module.__name__} is {new} since version 0.2", DeprecationWarning, stacklevel=2)
        # The import system returns what stands here afterwards.
        sys.modules[module.__name__] = import_module(new)


def find_moved_packages() -> None:
    """Let the import system find packages by their old names.

    It asks here first: otherwise a module below an old name would be found in the new folder and loaded twice.
    """
    sys.meta_path.insert(0, _Finder())
