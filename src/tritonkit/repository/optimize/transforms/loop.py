"""The training loop for every variant that trains: it fits a network to another network's outputs.

The soft loss is that of Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural network"
(https://arxiv.org/abs/1503.02531): the divergence between both networks' class probabilities, softened by a
temperature and scaled by its square. Without integer targets the outputs are not class scores, and
their squared error counts instead, in units of the teacher's own variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.torch_module import SEED, outputs_of, to_tensors
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.optimize import Optimize

__all__ = ["Pair", "fit", "parameter_count", "to_pairs"]

_GRADIENT_NORM = 5.0  # a step may not be longer: one bad batch cannot undo what was learned
_WEIGHT_DECAY = 1e-4

Pair = tuple[tuple[Any, ...], Any]
"""Input tensors in the order of the spec, batch axis first; and the targets, a tensor or None."""


def fit(
    student: Any,
    teacher: Callable[..., Any],
    batches: Sequence[Pair],
    optimize: Optimize,
    where: str,
    say: Callable[[str], None],
    each_epoch: Callable[[int], None] = lambda _: None,
) -> float:
    """Train `student` in place to give the teacher's outputs; return the mean loss of the last epoch.

    The student stays in its mode, so dropout and batch normalization are the caller's choice. The
    teacher runs once per batch. Each epoch has its own order of batches, seeded by torch_module.SEED.
    `each_epoch` is called before each epoch with its number, from 0. Epochs, losses and rate come from `optimize`;
    `where` names the section for error messages. The rate rises over the first tenth of the steps and
    falls along a cosine.
    BuildError when the loss is no longer a number, or nothing can be trained.
    """
    torch = need("torch", "build")
    weights = [p for p in student.parameters() if p.requires_grad]
    with torch.no_grad():
        references = [outputs_of(teacher, inputs) for inputs, _ in batches]
    _can_learn(weights, references[0], where)
    optimizer = torch.optim.AdamW(weights, optimize.learning_rate, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _warm_then_cosine(optimize.epochs * len(batches)))
    mean = 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for epoch in range(optimize.epochs):
            each_epoch(epoch)
            losses = []
            for place in torch.randperm(len(batches)).tolist():
                inputs, targets = batches[place]
                loss = _loss(torch, outputs_of(student, inputs), references[place], targets, optimize)
                losses.append(_finite(float(loss.detach()), epoch, optimize, where))
                _step(torch, loss, weights, optimizer)
                schedule.step()
            mean = sum(losses) / len(losses)
            say(f"epoch {epoch + 1} of {optimize.epochs}, loss {mean:.3g}")
    return mean


def _step(torch: Any, loss: Any, weights: list[Any], optimizer: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, _GRADIENT_NORM)
    optimizer.step()


def _can_learn(weights: list[Any], references: list[Any], where: str) -> None:
    if not weights or not any(output.is_floating_point() for output in references):
        what = "floating-point output to learn from" if weights else "parameter to train"
        raise BuildError(
            where, found=f"the network has no {what}", wanted="a network with both, for a variant that trains"
        )


def to_pairs(spec: Spec, training: Sequence[tuple[Batch, Any]]) -> list[Pair]:
    """A job's training data as tensors."""
    torch = need("torch", "build")
    return [
        (to_tensors(spec, batch), None if targets is None else torch.tensor(targets)) for batch, targets in training
    ]


def parameter_count(module: Any) -> int:
    """Number of learned values in a module."""
    return sum(p.numel() for p in module.parameters())


def _warm_then_cosine(steps: int) -> Callable[[int], float]:
    warm = max(1, steps // 10)

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    return share


def _loss(torch: Any, outputs: list[Any], references: list[Any], targets: Any, optimize: Optimize) -> Any:
    """The loss alpha x soft + (1 - alpha) x hard; the soft loss alone without integer targets."""
    scores = _class_scores(torch, outputs, targets)
    soft = [
        _divergence(torch, f, w, optimize.temperature) if place == scores else _error(f, w)
        for place, (f, w) in enumerate(zip(outputs, references, strict=True))
        if w.is_floating_point()
    ]
    total = torch.stack(soft).mean()
    if scores is None:
        return total
    hard = torch.nn.functional.cross_entropy(outputs[scores], targets.long())
    return optimize.alpha * total + (1 - optimize.alpha) * hard


def _class_scores(torch: Any, outputs: list[Any], targets: Any) -> int | None:
    """Position of the first output [items, classes], if the targets are a class for each item."""
    if targets is None or targets.is_floating_point() or targets.ndim != 1:
        return None
    return next(
        (
            place
            for place, output in enumerate(outputs)
            if output.ndim == 2 and output.is_floating_point() and len(output) == len(targets)
        ),
        None,
    )


def _divergence(torch: Any, output: Any, reference: Any, temperature: float) -> Any:
    """Kullback-Leibler divergence of [items, classes] scores, times the temperature's square, so that
    its gradient does not shrink with the temperature."""
    functional = torch.nn.functional
    return temperature**2 * functional.kl_div(
        functional.log_softmax(output / temperature, dim=1),
        functional.log_softmax(reference / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )


def _error(output: Any, reference: Any) -> Any:
    """Mean squared error divided by the variance of the wanted outputs: 1 is as bad as their mean."""
    variance = reference.var(unbiased=False).clamp_min(1e-8)
    return (output - reference).square().mean() / variance


def _finite(loss: float, epoch: int, optimize: Optimize, where: str) -> float:
    if not math.isfinite(loss):
        raise BuildError(
            f"{where}.learning_rate",
            found=f"the loss became {loss} in epoch {epoch + 1} of {optimize.epochs}",
            wanted="a finite number",
            todo=f"lower learning_rate, now {optimize.learning_rate:g}, or look for extreme values in "
            "what optimize.training returns",
        )
    return loss
