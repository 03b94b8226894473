"""A small Llama and its byte-level BPE tokenizer, trained in about a minute on two cores."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import texts
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|end|>"
CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
"""A chat template without roles: the network continues the text."""
VOCABULARY, CONTEXT = 2048, 256
STEPS, ROWS = 400, 4
MATRIX_RATE, OTHER_RATE, MOMENTUM = 0.02, 8e-3, 0.95
WARM, STEADY = 10, 0.3
"""Steps in which the rates rise, and the part of all steps after which they fall."""


def train(folder: Path) -> None:
    """Write the trained checkpoint as Hugging Face does."""
    written = [text for text in texts.documents() if not texts.is_held_out(text)]
    tokenizer = _tokenizer(written)
    network = LlamaForCausalLM(_configuration())
    _fit(network, _tokens(tokenizer, written))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(written: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(written, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=END, model_max_length=CONTEXT, chat_template=CHAT
    )


def _configuration() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


def _tokens(tokenizer: PreTrainedTokenizerFast, written: list[str]) -> torch.Tensor:
    """All texts one after another, int64 [tokens], with an end before each."""
    rows = tokenizer.backend_tokenizer.encode_batch(written)
    return torch.tensor([token for row in rows for token in (0, *row.ids)])


def _fit(network: LlamaForCausalLM, tokens: torch.Tensor) -> None:
    """Muon for the layers' matrices, Adam for all other parameters."""
    inner = [parameter for parameter in network.model.layers.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in network.parameters() if all(parameter is not matrix for matrix in inner)]
    optimizers = [
        Muon(inner, {"lr": MATRIX_RATE}),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, _share) for optimizer in optimizers]
    network.train()
    for _, rows in zip(range(STEPS), _batches(tokens), strict=False):
        network(input_ids=rows, labels=rows).loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for stepped in (*optimizers, *schedules):
            stepped.step()
        network.zero_grad()
    network.eval()


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are made orthogonal (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

    In a few hundred steps it goes much further than Adam. PyTorch's own version computes in bfloat16, which takes a
    processor without it twenty times as long.
    """

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One step along the gradients."""
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - MOMENTUM)
                step = _orthogonal(weight.grad.lerp(mean, MOMENTUM))
                rows, columns = weight.shape
                weight.add_(step, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def _orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Approximately the nearest matrix whose singular values are all 1, by five steps of a Newton-Schulz iteration."""
    if matrix.shape[0] > matrix.shape[1]:
        return _orthogonal(matrix.T).T
    matrix = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        square = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.7750 * square + 2.0315 * square @ square) @ matrix
    return matrix


def _share(step: int) -> float:
    """Share of the full rates at a step."""
    falling = (step / STEPS - STEADY) / (1 - STEADY)
    return min((step + 1) / WARM, 1 - 0.98 * max(0.0, falling))


def _batches(tokens: torch.Tensor) -> Iterator[torch.Tensor]:
    """int64 [ROWS, CONTEXT] without end: all pieces of the text in another order, cut elsewhere each time."""
    random = np.random.default_rng(0)
    while True:
        pieces = tokens[int(random.integers(CONTEXT)) :].split(CONTEXT)[:-1]
        order = random.permutation(len(pieces))
        for start in range(0, len(order) - ROWS + 1, ROWS):
            yield torch.stack([pieces[place] for place in order[start : start + ROWS]])
