"""The training loop: what it learns from, that it repeats itself, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tritonkit.errors import BuildError
from tritonkit.repository.modelspec.optimize import Optimize
from tritonkit.repository.optimize.transforms.loop import Pair, fit

SETTINGS = Optimize(epochs=20, learning_rate=0.05, temperature=2.0, alpha=1.0)
WHERE = "spec optimize"


def changed(**values: float) -> Optimize:
    """The settings with some of them changed."""
    return SETTINGS.model_copy(update=values)


def linear(seed: int, outputs: int = 3) -> nn.Linear:
    """A layer 4 -> outputs with weights of its own."""
    torch.manual_seed(seed)
    return nn.Linear(4, outputs)


def pairs(targets: bool, count: int = 4) -> list[Pair]:
    """Batches of 8 random items, with classes 0 to 2 or without."""
    draw = torch.Generator().manual_seed(0)
    return [
        ((torch.randn(8, 4, generator=draw),), torch.randint(0, 3, (8,), generator=draw) if targets else None)
        for _ in range(count)
    ]


def trained(batches: list[Pair], settings: Optimize = SETTINGS) -> tuple[nn.Linear, float]:
    """A student after its training from linear(1), and its loss in the end."""
    student, teacher = linear(2), linear(1)
    loss = fit(student, teacher, batches, settings, WHERE, lambda _: None)
    return student, loss


def test_without_targets_the_outputs_themselves_are_learned() -> None:
    """A layer comes to give what the teacher's gives."""
    student, loss = trained(pairs(targets=False), changed(epochs=80))
    assert loss < 1e-3
    torch.testing.assert_close(student.weight, linear(1).weight, atol=0.1, rtol=0)


def test_alpha_weighs_the_teacher_against_the_targets() -> None:
    """With alpha 1 the targets do not count, with 0 the teacher does not."""
    batches = pairs(targets=True, count=1)
    (inputs, targets) = batches[0]
    alone = trained([(inputs, (targets + 1) % 3)])[0]
    assert torch.equal(alone.weight, trained(batches)[0].weight)
    student = trained(batches, changed(alpha=0.0, epochs=100))[0]
    assert (student(*inputs).argmax(1) == targets).float().mean() > 0.9
    assert (linear(1)(*inputs).argmax(1) == targets).float().mean() < 0.6


def test_the_soft_loss_is_that_of_the_paper() -> None:
    """Temperature squared times the divergence of the softened probabilities, item by item."""
    batches = pairs(targets=True, count=1)
    loss = trained(batches, changed(epochs=1, temperature=3.0))[1]
    with torch.no_grad():
        scores = [net(*batches[0][0]).double() for net in (linear(1), linear(2))]
    p, q = (torch.softmax(s / 3.0, 1) for s in scores)
    assert loss == pytest.approx(float(9.0 * (p * (p / q).log()).sum(1).mean()), rel=1e-4)


def test_scores_and_other_outputs_are_learned_together() -> None:
    """The class scores get the divergence, and the other output its squared error."""

    class Two(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.scores, self.other = linear(seed), linear(seed + 10, 2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.scores(x), self.other(x)[:, :, None]

    student, teacher, batches = Two(2), Two(1), pairs(targets=True)
    settings = changed(epochs=60, temperature=1.0, learning_rate=0.1)
    fit(student, teacher, batches, settings, WHERE, lambda _: None)
    (scores, other), (sure, same) = student(*batches[0][0]), teacher(*batches[0][0])
    torch.testing.assert_close(scores.softmax(1), sure.softmax(1), atol=0.03, rtol=0)
    torch.testing.assert_close(other, same, atol=0.1, rtol=0)


def test_training_repeats_itself_and_leaves_the_generators_alone() -> None:
    """Two runs give equal weights, whatever was drawn in between; the next random number is the same."""
    first = trained(pairs(targets=True))[0]
    student, teacher = linear(2), linear(1)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    fit(student, teacher, pairs(True), SETTINGS, WHERE, lambda _: None)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.weight, student.weight)


def test_progress_is_told_epoch_by_epoch() -> None:
    """Each epoch is announced to the caller and, once over, to a person with its loss."""
    lines: list[str] = []
    begun: list[int] = []
    settings = changed(epochs=2)
    fit(linear(2), linear(1), pairs(True), settings, WHERE, lines.append, begun.append)
    assert begun == [0, 1]
    assert [line.split(", ")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert all(float(line.split("loss ")[1]) > 0 for line in lines)


def test_a_loss_that_is_no_number_says_what_to_do() -> None:
    """Steps far too long end in an error that names the learning rate."""
    with pytest.raises(BuildError) as caught:
        trained(pairs(targets=False), changed(learning_rate=1e30))
    assert caught.value.where == "spec optimize.learning_rate"
    assert "epoch" in caught.value.found
    assert "lower learning_rate, now 1e+30" in caught.value.todo


def test_ctrl_c_ends_the_training_at_once() -> None:
    """An interrupt comes through as it is."""

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(linear(2), linear(1), pairs(True), SETTINGS, WHERE, interrupted)


@pytest.mark.parametrize(
    ("student", "teacher", "lacks"),
    [(nn.Flatten(), linear(1), "parameter"), (linear(2), lambda x: x.argmax(1), "floating-point")],
)
def test_what_cannot_learn_is_refused(student: nn.Module, teacher: nn.Module, lacks: str) -> None:
    """A network without parameters, or whose outputs are integers, is an error and no crash."""
    with pytest.raises(BuildError, match=lacks):
        fit(student, teacher, pairs(True), SETTINGS, WHERE, lambda _: None)
