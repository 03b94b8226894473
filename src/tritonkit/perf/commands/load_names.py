"""The models and inputs of `tritonkit load`, checked before a server is started for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tritonkit.errors import UsageError

__all__ = ["check_names", "whole_inputs"]


def whole_inputs(inputs: list[str], names: list[str]) -> tuple[str, ...]:
    """Every --input, its files named from the root, as the processes that read them work elsewhere."""
    from tritonkit.perf.load.inputs import split_inputs

    if inputs and len({*names}) > 1:
        raise UsageError("--input", found="several models", wanted="one model, which the inputs are for")
    split_inputs(inputs)
    whole = [text.partition("=@") for text in inputs]
    return tuple(
        f"{name}=@{Path(path).absolute()}" if at and "=" not in name else name + at + path for name, at, path in whole
    )


def check_names(project: Path, names: Sequence[str], address: str | None, inputs: Sequence[str]) -> bool:
    """Whether one of the models has no spec, as in a repository made elsewhere; only the server knows such a model.

    Raises:
        UsageError: no such model, neither here nor at a server that is named.
    """
    from tritonkit.repository.modelspec import load_all

    folder = project / "model_repository"
    own = [name for name in names if (project / "models" / name / "model.yaml").is_file()]
    served = [name for name in names if (folder / name / "config.pbtxt").is_file()]
    outside = [name for name in names if name not in own]
    may_be_served = address is not None and (inputs or not (project / "models").is_dir())
    if not outside or not all(name in served or may_be_served for name in outside):
        load_all(project, tuple(names))
        return False
    if own:
        load_all(project, tuple(own))
    return True
