"""Held-out texts for a language model, and their likelihood under the given network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.checkpoint import Checkpoint
from tritonkit.repository.export.hooks import load_hook
from tritonkit.repository.export.ready.prepared import missing_column
from tritonkit.repository.export.ready.rows import read_rows
from tritonkit.repository.modelspec import SampleFiles, Spec
from tritonkit.text import first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Texts", "mean_log_likelihood", "read_texts"]

_LONGEST = 256
"""Most tokens of a text that are measured."""


@dataclass(frozen=True)
class Texts:
    """Texts that measure every variant of one checkpoint.

    Args:
        tokens: each text's token ids, int64 [tokens].
        log_likelihoods: means over each text's tokens but the first, float64 [texts], by PyTorch in FP32.
    """

    tokens: list[NDArray[np.int64]]
    log_likelihoods: NDArray[np.float64]


def read_texts(spec: Spec, checkpoint: Checkpoint) -> Texts:
    """The texts of `quality.samples`, or documentation of Python's standard library.

    Raises:
        BuildError: the samples are not texts, or too short, or the checkpoint cannot be loaded.
    """
    import numpy as np

    tokens = _tokens(spec, checkpoint)
    torch, network = need("torch", "build"), checkpoint.load()
    with torch.inference_mode():
        means = [mean_log_likelihood(network(torch.from_numpy(ids)[None]).logits[0].numpy(), ids) for ids in tokens]
    return Texts(tokens, np.array(means))


def mean_log_likelihood(logits: Any, ids: NDArray[np.int64]) -> float:
    """Mean natural logarithm of the likelihood of each token after the first; logits: float32 [tokens, vocabulary]."""
    import numpy as np

    before = logits[:-1].astype(np.float64)
    before -= before.max(axis=1, keepdims=True)
    total = np.log(np.exp(before).sum(axis=1))
    return float((before[np.arange(len(ids) - 1), ids[1:]] - total).mean())


def _tokens(spec: Spec, checkpoint: Checkpoint) -> list[NDArray[np.int64]]:
    """Each text's token ids, cut to the length that is measured."""
    import numpy as np

    file = checkpoint.folder / "tokenizer.json"
    with _refusals(file):
        tokenizer = need("tokenizers", "models").Tokenizer.from_file(str(file))
    field = "quality.samples"
    hook, files = spec.model.hooks.get(field), spec.model.quality.samples
    if isinstance(files, SampleFiles):
        texts: Any = _texts_of(spec, field, files)
    else:
        texts = load_hook(spec, hook, field)() if hook else _documentation()
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise BuildError(
            f"{spec.file} {field}", found=f"{hook} returned {type(texts).__name__}", wanted="a list of texts"
        )
    texts = texts[: spec.model.quality.max_samples]
    longest = min(_LONGEST, checkpoint.context)
    with _refusals(file):
        ids_of_texts = [np.array(tokenizer.encode(text).ids[:longest], np.int64) for text in texts]
    ids_of_texts = [ids for ids in ids_of_texts if len(ids) > 1]
    if not ids_of_texts:
        raise BuildError(f"{spec.file} {field}", found="no text of more than one token", wanted="real, held-out texts")
    return ids_of_texts


def _texts_of(spec: Spec, field: str, files: SampleFiles) -> list[str]:
    """The texts of the column `text`, or of the one that `inputs` names."""
    rows = read_rows(spec, field, files)
    column = files.inputs.get("text", "text")
    if not isinstance(column, str) or column not in rows.columns:
        raise missing_column(spec, field, rows, str(column), " for the text")
    for row in rows.rows:
        if not isinstance(value := row.values.get(column), str):
            raise BuildError(
                f"{spec.file} {field}",
                found=f"{row.place}, {column}: found {value!r}"[:200],
                wanted="a text",
                todo="correct or remove that row",
            )
    return [str(row.values[column]) for row in rows.rows]


@contextmanager
def _refusals(file: Path) -> Iterator[None]:
    """Report a tokenizer that cannot be read, or whose expressions give up on a text, as an error of the checkpoint."""
    try:
        yield
    except BaseException as error:  # the library's panics are not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | BuildError):
            raise
        raise BuildError(
            str(file),
            found=f"the tokenizer cannot cut texts into tokens: {first_line(error)}",
            wanted="a fast tokenizer, as save_pretrained writes it",
        ) from None


def _documentation() -> list[str]:
    """Texts for a spec that has none: the documentation of modules of Python's standard library."""
    import argparse
    import collections
    import datetime
    import decimal
    import difflib
    import logging
    import pathlib
    import subprocess
    import threading

    modules = (argparse, collections, datetime, decimal, difflib, logging, pathlib, subprocess, threading)
    texts = [
        str(value.__doc__)
        for module in modules
        for _, value in sorted(vars(module).items())
        if isinstance(value, type) and len(str(value.__doc__)) > 200
    ]
    return texts[:32]
