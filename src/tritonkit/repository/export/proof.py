"""The proof that items are independent, for a spec's network and its variants: its items, sizes and facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tritonkit.repository.export.artifact import Independence, Signature
from tritonkit.repository.export.independence import DEFAULT_LARGEST, prove
from tritonkit.repository.export.made_up import Hints, make_up
from tritonkit.repository.export.neighbors import FINITE_KINDS, groups_of
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.shaken import facts_of
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import MAX_SIZE

__all__ = ["prove_network", "prove_variant"]

_MADE_UP = 8
"""Number of items made up for the proof at each size, in addition to the samples that measure quality."""
_AGAIN = 60_000_000_000
"""Work for the proof of a variant, as `independence.prove` counts it."""


def prove_network(
    spec: Spec,
    signature: Signature,
    samples: Sequence[Batch],
    hints: Hints,
    run: Callable[[Batch], Batch],
    file: Path,
    most: int = 0,
) -> Independence:
    """The proof for a network in full precision.

    Args:
        file: its ONNX file, if it has one.
        most: the largest batch that it takes; 0 for any.
    """
    more: list[Batch] = []
    if spec.model.quality.samples is None:  # few values may all lie on one side of a threshold
        more = [
            make_up(spec, signature, _MADE_UP, largest, seed, hints) for seed, largest in ((100, False), (101, True))
        ]
    return prove(
        run,
        groups_of([*samples, *more]),
        spec.model.quality.tolerance,
        largest=min(most or MAX_SIZE, max(DEFAULT_LARGEST, spec.model.serving.max_batch_size or 0)),
        **facts_of(file),
    )


def prove_variant(spec: Spec, samples: Sequence[Batch], run: Callable[[Batch], Batch], base: Path) -> Independence:
    """The same proof, with fewer batches, for a lossless variant of the network in the file `base`, whose items are
    independent."""
    return prove(
        run,
        groups_of(samples),
        spec.model.quality.tolerance,
        kinds=FINITE_KINDS,
        largest=8,
        budget=_AGAIN,
        **facts_of(base),
    )
