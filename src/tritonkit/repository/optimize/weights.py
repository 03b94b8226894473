"""Trained weights, cached between builds because training takes longest."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonkit.disk import write_whole
from tritonkit.errors import TritonkitError
from tritonkit.extras import need
from tritonkit.repository.export import torch_module
from tritonkit.repository.export.artifact import sha256_file, sha256_json
from tritonkit.repository.export.hooks import load_hook
from tritonkit.repository.export.torch_module import load_weights, make_module
from tritonkit.repository.modelspec import Spec, resolve_file
from tritonkit.repository.optimize.fingerprint import folder_digests, network_facts, tool_versions
from tritonkit.text import first_line

__all__ = ["WeightCache", "load_teacher", "load_trained"]


class WeightCache:
    """The weights of one spec's modules, as files that hold only tensors; each name ends with the file's SHA-256.

    With `fresh`, weights of earlier builds are ignored. `warn` is called for a damaged file.
    """

    def __init__(
        self, folder: Path, spec: Spec, *, fresh: bool = False, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self.folder = folder
        self._spec = spec
        self.fresh = fresh
        self._warn = warn
        self._made: set[str] = set()

    def find(self, name: str) -> dict[str, Any] | None:
        """The weights of a module that was trained from the same code and data; None if there are none.

        torch does not notice a flipped bit, so the digest is checked first.
        """
        if self.fresh and name not in self._made:
            return None
        for file in sorted(self.folder.glob(f"{self._stem(name)}-*.pt")):
            try:
                if sha256_file(file) != file.stem.rpartition("-")[2]:
                    raise ValueError("its content is not what its hash says")
                state: dict[str, Any] = need("torch", "build").load(file, weights_only=True)
            except TritonkitError:
                raise
            except Exception as error:
                self._warn(f"{file} is damaged and not used: {first_line(error)}")
                continue
            return state
        return None

    def store(self, name: str, state: dict[str, Any]) -> None:
        """Cache weights, in place of older ones of that name."""
        for old in self.folder.glob(f"weights-{name}-*"):
            old.unlink(missing_ok=True)
        # Saved through memory: on a full disk torch reports positions in an archive, or ends the process.
        content = io.BytesIO()
        need("torch", "build").save(state, content)
        digest = hashlib.sha256(content.getbuffer()).hexdigest()
        write_whole(self.folder / f"{self._stem(name)}-{digest}.pt", content.getbuffer())
        self._made.add(name)

    def _stem(self, name: str) -> str:
        network, optimize = self._spec.model.network, self._spec.model.optimize
        tools = tool_versions(self._spec)
        facts = {
            "network": network_facts(network),
            "teacher": optimize.teacher and optimize.teacher.model_dump(),
            "folder": folder_digests(self._spec.folder, skip={self._spec.file.name}),
            "tools": {key: tools.get(key) for key in ("numpy", "python", "torch", "machine")},
            "code": [sha256_file(Path(file)) for file in (torch_module.__file__, __file__)],
        }
        return f"weights-{name}-{sha256_json(facts)[:16]}"


def load_trained(spec: Spec, weights: WeightCache, say: Callable[[str], None]) -> Any:
    """The network in evaluation mode: made by its factory, then trained or given its weights."""
    network = spec.model.network
    assert network.torch is not None  # noqa: S101  the caller chose this source
    module = make_module(spec, network.torch, "network.torch")
    if network.weights is not None:
        file = resolve_file(network.weights, spec, "network.weights")
        load_weights(module, file, f"{spec.file} network.weights")
    return _trained(spec, module, network.train, "network", weights, say).eval()


def load_teacher(spec: Spec, weights: WeightCache, say: Callable[[str], None]) -> Any:
    """`optimize.teacher` in evaluation mode, trained."""
    teacher = spec.model.optimize.teacher
    assert teacher is not None  # noqa: S101  the caller has looked
    module = make_module(spec, teacher.torch, "optimize.teacher.torch")
    return _trained(spec, module, teacher.train, "teacher", weights, say).eval()


def _trained(
    spec: Spec, module: Any, hook: str | None, name: str, weights: WeightCache, say: Callable[[str], None]
) -> Any:
    if hook is None:
        return module
    state = weights.find(name)
    if state is not None:
        module.load_state_dict(state)
        return module
    say(f"training the {name}")
    field = "network.train" if name == "network" else f"optimize.{name}.train"
    load_hook(spec, hook, field)(module)
    weights.store(name, module.state_dict())
    return module
