"""Exports of other frameworks: a process of their own, made-up input, and the comparison of answers.

The process writes model.onnx into a folder if its answers are the framework's own, else refusal.json with the parts of
an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.onnx_file import open_session

__all__ = ["NETWORK", "export_in_process", "hold_to_answers", "made_up", "refusing"]

NETWORK = "model.onnx"
_REFUSAL = "refusal.json"
_PARTS = ("where", "found", "wanted", "todo", "details")
_BATCHES = (1, 2, 5)
_FREE = (16, 7)
"""Sizes of free axes other than the batch."""
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
"""Largest differences of an answer from the framework's own."""


def export_in_process(module: str, source: Path, folder: Path, where: str, env: Mapping[str, str]) -> Path:
    """The ONNX file that a module writes into the folder, in a process of its own.

    Raises:
        BuildError: the process refused the source, or ended in another way.
    """
    command = [sys.executable, "-m", module, str(source.resolve()), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=os.environ | dict(env)
    )
    if (folder / _REFUSAL).is_file():
        parts = json.loads((folder / _REFUSAL).read_text())
        raise BuildError(**parts | {"where": parts["where"] or where})
    if done.returncode or not (folder / NETWORK).is_file():
        lines = done.stderr.strip().splitlines()
        raise BuildError(
            where,
            found=f"the process that exports it ended with {done.returncode}: {lines[-1] if lines else 'no message'}",
            wanted="an ONNX file",
            details="\n".join(lines[-20:]),
        )
    return folder / NETWORK


def refusing(export: Callable[[Path, Path], None], source: Path, folder: Path) -> None:
    """Export a source into a folder in this process, or leave the parts of its error there."""
    try:
        export(source, folder / NETWORK)
    except BuildError as error:
        (folder / _REFUSAL).write_text(json.dumps({part: getattr(error, part) for part in _PARTS}))


def made_up(tensors: Sequence[tuple[Sequence[int | None], str]]) -> Iterator[list[Any]]:
    """Seeded input of several batches and sizes, for tensors with a shape and a dtype of numpy; integers are small."""
    import numpy as np

    random = np.random.default_rng(0)
    for free in _FREE:
        for batch in _BATCHES:
            arrays = []
            for shape, dtype in tensors:
                sizes = [size or (free if place else batch) for place, size in enumerate(shape)]
                kind = np.dtype(dtype) if dtype != "bfloat16" else np.dtype("float32")
                drawn = random.random(sizes) if kind.kind == "f" else random.integers(0, 2, sizes)
                arrays.append(np.asarray(drawn).astype(kind))
            yield arrays


def hold_to_answers(file: Path, expected: Sequence[tuple[Sequence[Any], Sequence[Any]]], framework: str) -> None:
    """ValueError where an ONNX file's answers are not the framework's; arrays are in the order of the file's tensors.

    Args:
        expected: inputs, with the framework's answers to them.
    """
    import numpy as np

    session = open_session(file, file.name)
    names = [entry.name for entry in session.get_inputs()]
    for given, answers in expected:
        made = session.run(None, dict(zip(names, given, strict=True)))
        for one, answer in zip(made, answers, strict=True):
            same = one.shape == answer.shape and (
                np.allclose(one, answer, rtol=_RELATIVE, atol=_ABSOLUTE)
                if answer.dtype.kind == "f"
                else np.array_equal(one, answer)
            )
            if not same:
                raise ValueError(f"its answers differ from {framework}'s for {[array.shape for array in given]}")
