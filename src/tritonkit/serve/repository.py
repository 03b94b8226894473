"""The models of a repository as Triton will see them, and the models that a subset of them needs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tritonkit.client.wire.protos import schema
from tritonkit.errors import ServerStartError, UsageError
from tritonkit.repository.publish.configurations import named_config
from tritonkit.repository.publish.integrity import CONFIG, IrregularFileError, open_file
from tritonkit.serve.calls import CALLS, called_by
from tritonkit.serve.core.native_backends import PAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["ServedModel", "check_files", "check_unpadded", "config_file", "parse_config", "read_models"]

_STEP = "tritonkit.step"
_LOADER = "pytorch_network.py"
"""The module that a build puts next to a network that PyTorch runs in a model.py."""
_BACKENDS = {
    "ensemble": "ensemble",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorrt_plan": "tensorrt",
}


@dataclass(frozen=True)
class ServedModel:
    """One model of the repository.

    Args:
        name: the folder's name, which Triton uses.
        folder: the folder with `config.pbtxt`, the numbered versions and `warmup/`.
        config: Triton's own `ModelConfig` message, of the configuration that is served.
        versions: the numbers that its version policy serves, newest last.
        calls: the models of the repository that its Python calls.
    """

    name: str
    folder: Path
    config: Any
    versions: tuple[int, ...]
    calls: tuple[str, ...] = ()

    @property
    def backend(self) -> str:
        """The backend's name, even if only the older `platform` is given."""
        return str(self.config.backend) or _BACKENDS.get(self.config.platform, "")

    @property
    def step(self) -> str:
        """The name of tritonkit's pipeline step, if the model is one; empty for any other model."""
        is_step = _STEP in self.config.parameters
        return str(self.config.parameters[_STEP].string_value) if is_step else ""

    @property
    def runs_pytorch(self) -> bool:
        """Whether each instance is a process in which tritonkit's own code runs a network in PyTorch."""
        built = (self.folder / str(version) / _LOADER for version in self.versions)
        return self.backend == "pytorch" or (self.backend == "python" and any(file.is_file() for file in built))

    @property
    def padded(self) -> bool:
        """Whether requests of different lengths share its batches, which tritonkit's backends pad."""
        return PAD in self.config.parameters

    @property
    def parts(self) -> tuple[str, ...]:
        """The models that an ensemble calls; empty for any other model."""
        return tuple(step.model_name for step in self.config.ensemble_scheduling.step)

    @property
    def needs(self) -> tuple[str, ...]:
        """The models to load before it: the parts of an ensemble, and those that a Python model calls."""
        return self.parts or self.calls

    @property
    def relies_on(self) -> tuple[str, ...]:
        """Models it cannot be served without; a call that was only found in its Python may never be made."""
        return self.needs if self.parts or CALLS in self.config.parameters else ()


def check_unpadded(models: Iterable[ServedModel]) -> None:
    """Refuse models whose requests NVIDIA's own backends would join without padding, and then fail to run.

    Raises:
        ServerStartError: a model's lengths are padded by its backend.
    """
    for model in models:
        if model.padded:
            raise ServerStartError(
                f"model {model.name}",
                found="requests of different lengths share its batches, which NVIDIA's backends cannot pad",
                wanted="a repository for this server",
                todo="build it again: tritonkit build --target nvidia",
            )


def read_models(
    repository: Path,
    names: Sequence[str] | None = None,
    config: str = "",
    refused: dict[str, ServerStartError] | None = None,
) -> tuple[ServedModel, ...]:
    """The named models (all by default) and what they need, each after what it calls.

    Args:
        config: the name of the configuration to serve, for the models that have one of that name.
        refused: receives the models that cannot be served, with their errors; without it the first error is raised.

    Raises:
        UsageError: the folder does not exist, has no model, or has no model of that name.
        ServerStartError: a configuration that cannot be read, or an ensemble without its parts.
    """
    names_here = _known(repository)
    models: dict[str, ServedModel] = {}
    for name in names_here if names is None else names:
        if name not in names_here:
            raise UsageError(
                f"model {name!r}", found=f"{repository} holds no {name}/config.pbtxt", wanted=_nearest(name, names_here)
            )
        try:
            _add(repository, name, names_here, models, (), config, checked=refused is not None)
        except ServerStartError as error:
            if refused is None:
                raise
            refused[name] = error
    return tuple(models.values())


def _add(
    repository: Path,
    name: str,
    names: Sequence[str],
    models: dict[str, ServedModel],
    callers: tuple[str, ...],
    named: str,
    *,
    checked: bool,
) -> None:
    """Add a model after everything it calls, with its files checked. Triton refuses ensembles that call each other."""
    if name in models or name in callers:
        return
    file = config_file(repository / name, named)
    if name not in names:
        raise ServerStartError(
            str(repository / callers[-1] / "config.pbtxt"),
            found=f"it calls the model {name!r}, which the repository does not hold",
            wanted=_nearest(name, names),
            todo="build it: tritonkit build",
        )
    config = parse_config(file)
    folder = repository / name
    versions = _versions(folder, config)
    model = ServedModel(name, folder, config, versions, called_by(folder, config, versions, names))
    if checked:
        check_files(model)
    for part in model.needs:
        with contextlib.nullcontext() if part in model.relies_on else _tolerated():
            _add(repository, part, names, models, (*callers, name), named, checked=checked)
    models[name] = model


def _tolerated() -> contextlib.suppress:
    return contextlib.suppress(ServerStartError)


def config_file(folder: Path, name: str) -> Path:
    """The file that Triton reads in a model's folder when it serves configurations of this name."""
    named = folder / named_config(name)
    return named if name and named.is_file() else folder / CONFIG


def parse_config(file: Path) -> Any:
    """A `config.pbtxt` as Triton's `ModelConfig`; ServerStartError if it is invalid."""
    from google.protobuf import text_format

    try:
        with open_file(file) as opened:
            text = opened.read().decode("utf-8")
        return text_format.Parse(text, schema().ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError, IrregularFileError) as error:
        raise ServerStartError(
            str(file),
            found=f"it is not a Triton model configuration: {error}",
            todo="build it again: tritonkit build --force",
        ) from error


def check_files(model: ServedModel) -> None:
    """Refuse a model without its files. Triton would wait tens of seconds for a missing `model.py`, and delay every
    other model meanwhile.

    Raises:
        ServerStartError: no version to serve, or a Python model without its file.
    """
    if not model.versions:
        raise ServerStartError(
            str(model.folder),
            found=f"model {model.name} has no version that could be served",
            wanted="a numbered folder that its version policy names",
            todo="tritonkit build",
        )
    if model.backend != "python":
        return
    name = model.config.default_model_filename or "model.py"
    for version in model.versions:
        file = model.folder / str(version) / name
        if not file.is_file():
            raise ServerStartError(
                str(file),
                found=f"model {model.name} has no such file",
                wanted="the Python of a model whose backend is python",
                todo="tritonkit build",
            )


def _known(repository: Path) -> list[str]:
    if not repository.is_dir():
        raise UsageError(str(repository), found="there is no such folder", todo="tritonkit build")
    names = sorted(file.parent.name for file in repository.glob("*/config.pbtxt"))
    if not names:
        raise UsageError(str(repository), found="it holds no NAME/config.pbtxt", todo="tritonkit build")
    return names


def _versions(folder: Path, config: Any) -> tuple[int, ...]:
    """The versions that the policy serves; without a policy, the latest version."""
    there = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return tuple(there)
    if choice == "specific":
        return tuple(number for number in there if number in policy.specific.versions)
    latest = policy.latest.num_versions if choice == "latest" else 1
    return tuple(there[-(latest or 1) :])


def _nearest(name: str, names: Sequence[str]) -> str:
    from tritonkit.repository.modelspec.document import nearest

    return nearest(name, names)
