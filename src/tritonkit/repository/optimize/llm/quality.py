"""Quality of a language model: mean log-likelihood of a token in held-out texts, as served and in the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.repository.export.artifact import MeasuredQuality
from tritonkit.repository.export.language import mean_log_likelihood
from tritonkit.repository.export.scores import bootstrap_drop
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.llm.convert import FILE
from tritonkit.repository.optimize.openvino_core import compile_for_cpu, open_core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["measure_language", "served_log_likelihoods"]

METRIC = "log_likelihood"


def measure_language(job: Job, folder: Path) -> MeasuredQuality:
    """Mean log-likelihood of a token for the files in a folder, text by text, compared with the checkpoint's.

    It is the natural logarithm, minus that of the perplexity.

    Raises:
        BuildError: the samples are not texts, or too short.
    """
    import numpy as np

    job.say("measuring quality")
    texts = job.texts
    served, reference = (served_log_likelihoods(folder, texts.tokens, job.threads), texts.log_likelihoods)
    low, high = bootstrap_drop(served, reference)
    return MeasuredQuality(
        METRIC,
        float(served.mean()),
        float(reference.mean()),
        float(np.abs(served - reference).max()),
        len(served),
        low,
        high,
        against="PyTorch",
    )


def served_log_likelihoods(folder: Path, texts: Sequence[NDArray[np.int64]], threads: int) -> NDArray[np.float64]:
    """Mean log-likelihoods of the converted network: float64 [texts], over each text's tokens but the first.

    Args:
        texts: each text's token ids, int64 [tokens].
    """
    import numpy as np

    model = open_core().read_model(str(folder / FILE))
    request = compile_for_cpu(model, threads).create_infer_request()
    means = []
    for ids in texts:
        request.reset_state()
        row = ids[None]
        logits = request.infer(
            {
                "input_ids": row,
                "attention_mask": np.ones_like(row),
                "position_ids": np.arange(len(ids), dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )["logits"]
        means.append(mean_log_likelihood(logits[0], ids))
    return np.array(means)
