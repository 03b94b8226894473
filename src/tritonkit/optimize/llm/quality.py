"""How good a language model is: the log-likelihood of a token of held-out texts, as served and as given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.export.artifact import Measured
from tritonkit.export.checkpoint import Checkpoint
from tritonkit.export.hooks import load_hook
from tritonkit.export.job import Job
from tritonkit.export.quality import bootstrap_drop
from tritonkit.extras import need
from tritonkit.optimize.llm.convert import FILE
from tritonkit.optimize.openvino_core import open_core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["measure_language", "served_log_likelihoods"]

METRIC = "log_likelihood"
_LONGEST = 256
"""Tokens of a text that count."""


def measure_language(job: Job, folder: Path) -> Measured:
    """Mean log-likelihood of a token (natural logarithm; minus that of the perplexity), text by text, of the files in a
    folder beside those of the checkpoint.

    Raises:
        BuildError: the samples are no texts, or too short.
    """
    import numpy as np

    job.say("measuring quality")
    checkpoint = job.checkpoint
    texts = _tokens(job, checkpoint)
    found = served_log_likelihoods(folder, texts, job.threads)
    wanted = _reference(checkpoint, texts)
    low, high = bootstrap_drop(found, wanted)
    return Measured(
        METRIC, float(found.mean()), float(wanted.mean()), float(np.abs(found - wanted).max()),
        len(texts), low, high, against="PyTorch",
    )  # fmt: skip


def _tokens(job: Job, checkpoint: Checkpoint) -> list[NDArray[np.int64]]:
    """Each held-out text as int64 [tokens], cut to what counts."""
    import numpy as np

    tokenizer = need("tokenizers", "models").Tokenizer.from_file(
        str(checkpoint.folder / "tokenizer.json")
    )
    field = "quality.samples"
    hook = job.spec.model.hooks.get(field)
    texts = load_hook(job.spec, hook, field)() if hook else _documentation()
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise BuildError(
            f"{job.spec.file} {field}", found=f"{hook} returned {type(texts).__name__}", wanted="a list of texts"
        )  # fmt: skip
    texts = texts[: job.spec.model.quality.max_samples]
    longest = min(_LONGEST, checkpoint.context)
    found = [np.array(tokenizer.encode(text).ids[:longest], np.int64) for text in texts]
    found = [ids for ids in found if len(ids) > 1]
    if not found:
        raise BuildError(
            f"{job.spec.file} {field}", found="no text of more than one token", wanted="real, held-out texts"
        )  # fmt: skip
    return found


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

    modules = (
        argparse, collections, datetime, decimal, difflib, logging, pathlib, subprocess, threading
    )  # fmt: skip
    texts = [
        str(value.__doc__)
        for module in modules
        for _, value in sorted(vars(module).items())
        if isinstance(value, type) and len(str(value.__doc__)) > 200
    ]
    return texts[:32]


def served_log_likelihoods(
    folder: Path, texts: Sequence[NDArray[np.int64]], threads: int
) -> NDArray[np.float64]:
    """Of the converted network: float64 [texts], the mean over a text's tokens but the first.

    Args:
        texts: int64 [tokens] each.
    """
    import numpy as np

    options = {"INFERENCE_NUM_THREADS": threads}
    request = open_core().compile_model(str(folder / FILE), "CPU", options).create_infer_request()
    found = []
    for ids in texts:
        request.reset_state()
        row = ids[None]
        logits = request.infer(
            {
                "input_ids": row, "attention_mask": np.ones_like(row),
                "position_ids": np.arange(len(ids), dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )["logits"]  # fmt: skip
        found.append(_mean(logits[0], ids))
    return np.array(found)


def _reference(checkpoint: Checkpoint, texts: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    import numpy as np

    torch, network = need("torch", "build"), checkpoint.load()
    with torch.inference_mode():
        return np.array(
            [_mean(network(torch.from_numpy(ids)[None]).logits[0].numpy(), ids) for ids in texts]
        )


def _mean(logits: Any, ids: NDArray[np.int64]) -> float:
    """Mean log-likelihood of each token after the first; logits: float32 [tokens, vocabulary]."""
    import numpy as np

    before = logits[:-1].astype(np.float64)
    before -= before.max(axis=1, keepdims=True)
    total = np.log(np.exp(before).sum(axis=1))
    return float((before[np.arange(len(ids) - 1), ids[1:]] - total).mean())
