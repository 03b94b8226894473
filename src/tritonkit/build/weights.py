"""Trained weights, kept from build to build: training is what takes longest."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from tritonkit.build.artifact import sha256_file
from tritonkit.build.disk import write_whole
from tritonkit.build.extras import need
from tritonkit.build.fingerprint import folder_digests, tool_versions
from tritonkit.spec import Spec

__all__ = ["Weights"]


class Weights:
    """The weights of one spec's modules, as files of tensors alone.

    Args:
        folder: the cache's place for this spec.
        fresh: forget what was trained before.
    """

    def __init__(self, folder: Path, spec: Spec, *, fresh: bool = False) -> None:
        self._folder = folder
        self._spec = spec
        self._fresh = fresh
        self._made: set[str] = set()

    def find(self, name: str) -> dict[str, Any] | None:
        """The weights of a module that was trained from the same code and data; None without."""
        file = self._file(name)
        if not file.is_file() or (self._fresh and name not in self._made):
            return None
        try:
            state: dict[str, Any] = need("torch", "build").load(file, weights_only=True)
        except Exception:  # a file that was cut off is trained again
            return None
        return state

    def store(self, name: str, state: dict[str, Any]) -> None:
        """Keep weights, in place of older ones of that name."""
        file = self._file(name)
        for old in self._folder.glob(f"weights-{name}-*"):
            old.unlink(missing_ok=True)
        # Through memory: of a full disk torch tells as positions in an archive, or ends the process.
        content = io.BytesIO()
        need("torch", "build").save(state, content)
        write_whole(file, content.getbuffer())
        self._made.add(name)

    def _file(self, name: str) -> Path:
        network, optimize = self._spec.model.network, self._spec.model.optimize
        tools = tool_versions(self._spec)
        facts = {
            "network": network.model_dump(mode="json"),
            "teacher": optimize.teacher and optimize.teacher.model_dump(),
            "folder": folder_digests(self._spec.folder, skip={self._spec.file.name}),
            "tools": {key: tools.get(key) for key in ("numpy", "python", "torch", "machine")},
            "code": sha256_file(Path(__file__).with_name("torch_module.py")),
        }
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        return self._folder / f"weights-{name}-{key}.pt"
