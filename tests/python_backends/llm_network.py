"""A tiny language model made here: random weights, two layers of attention, and a tokenizer of words or bytes.

The graph has the form that OpenVINO GenAI knows a language model by: inputs of these names, and keys and values as
states that are gathered by `beam_idx` and grow by what is new.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LAYERS, HEADS, SIZE = 2, 2, 16
WIDTH = HEADS * SIZE
CONTEXT = 256
EOS = 1
WORDS = ["<unk>", "</s>", "<user>", "<bot>", *(f"w{number}" for number in range(4, 200))]
"""The tokenizer's words by token ID."""
VOCABULARY = len(WORDS)
CHAT = (
    "{% for message in messages %}"
    "{% if message.role == 'nobody' %}{{ raise_exception('nobody may speak') }}{% endif %}"
    "<{{ message.role }}> {{ message.content }} "
    "{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
)


def constant(value: Any, kind: Any = np.int64) -> Any:
    """A constant node."""
    return op.constant(np.array(value, kind))


class _Weights:
    """Random matrices, always the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> Any:
        return op.constant(self._random.normal(0, 0.6, shape).astype(np.float32))


def _heads(values: Any) -> Any:
    """[batch, tokens, width] as [batch, heads, tokens, size]."""
    split = op.reshape(values, constant([0, 0, HEADS, SIZE]), special_zero=True)
    return op.transpose(split, constant([0, 2, 1, 3]))


def _kept(name: str, new: Any, batch: Any, beam: Any) -> tuple[Any, Any]:
    """A state with what is new at its end: [batch, heads, all tokens, size], and the node that keeps it."""
    shape = ov.PartialShape([-1, HEADS, -1, SIZE])
    variable = Variable(_info(name, shape))
    empty = op.broadcast(constant(0.0, np.float32), op.concat([batch, constant([HEADS, 0, SIZE])], 0))
    before = op.gather(op.read_value(empty, variable), beam, constant(0))
    whole = op.concat([before, new], 2)
    return whole, op.assign(whole, variable)


def _info(name: str, shape: ov.PartialShape) -> VariableInfo:
    info = VariableInfo()
    info.variable_id, info.data_shape, info.data_type = name, shape, ov.Type.f32
    return info


def network(context: int = CONTEXT, seed: int = 0, wide: int = 0, vocabulary: int = VOCABULARY) -> ov.Model:
    """The graph: logits [batch, tokens, vocabulary] of input_ids [batch, tokens].

    With `wide` columns it also multiplies by a matrix of that size four times, which takes time and hardly changes
    the result.
    """
    weights = _Weights(seed)
    names = ("input_ids", "attention_mask", "position_ids")
    ids, mask, places = (op.parameter([-1, -1], np.int64, name=name) for name in names)
    beam = op.parameter([-1], np.int32, name="beam_idx")
    for node, name in zip((ids, mask, places, beam), (*names, "beam_idx"), strict=True):
        node.output(0).set_names({name})
    batch = op.gather(op.shape_of(ids), constant([0]), constant(0))
    x = op.gather(weights(vocabulary, WIDTH), ids, constant(0))
    x = op.add(x, op.gather(weights(context, WIDTH), places, constant(0)))
    kept = []
    for layer in range(LAYERS):
        query, key, value = (_heads(op.matmul(x, weights(WIDTH, WIDTH), False, False)) for _ in range(3))
        key, keys = _kept(f"key.{layer}", key, batch, beam)
        value, values = _kept(f"value.{layer}", value, batch, beam)
        kept += [keys, values]
        attended = op.scaled_dot_product_attention(query, key, value, _causal(mask, ids))
        joined = op.reshape(op.transpose(attended, constant([0, 2, 1, 3])), constant([0, 0, WIDTH]), special_zero=True)
        x = op.tanh(op.add(x, op.matmul(joined, weights(WIDTH, WIDTH), False, False)))
    matrix = op.constant(np.ones((WIDTH, wide), np.float32)) if wide else None
    for _ in range(4 if wide else 0):
        mean = op.reduce_mean(op.matmul(x, matrix, False, False), constant([2]), True)
        x = op.add(x, op.multiply(mean, constant(1e-9, np.float32)))
    logits = op.result(op.matmul(x, weights(WIDTH, vocabulary), False, False))
    logits.output(0).set_names({"logits"})
    return ov.Model([logits], kept, [ids, mask, places, beam], "tiny")


def _causal(mask: Any, ids: Any) -> Any:
    """Mask of the tokens that each new token may see: [1, 1, new tokens, all tokens]."""
    new = op.squeeze(op.gather(op.shape_of(ids), constant([1]), constant(0)), constant([0]))
    past = op.squeeze(op.gather(op.shape_of(mask), constant([1]), constant(0)), constant([0]))
    columns = op.range(constant(0), past, constant(1), "i64")
    rows = op.range(op.subtract(past, new), past, constant(1), "i64")
    seen = op.less_equal(op.unsqueeze(columns, constant([0])), op.unsqueeze(rows, constant([1])))
    return op.unsqueeze(seen, constant([0, 1]))


def word_tokenizer() -> Tokenizer:
    """Words between spaces."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    """One token for each byte, as in the tokenizers of GPT-2 and its followers."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


BYTES, END = 260, 256
"""Tokens of the network of bytes, and the one that ends its answers."""


def chat_tokenizer() -> Tokenizer:
    """The tokenizer of bytes with an end, and a mark before calls that it counts as special, as Mistral's does."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["</s>", "[TOOL_CALLS]"])
    return tokenizer


def write_byte_model(folder: Path, chat: str, context: int = CONTEXT) -> Path:
    """A version's folder of a network that reads and writes bytes."""
    write_model(folder, chat, END, context, BYTES)
    chat_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def fallback_tokenizer() -> Tokenizer:
    """Bytes by name where there is no token, and spaces as a letter, as in the tokenizers of Llama."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdeé"]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=names[0], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def write_model(
    folder: Path,
    chat: str | None = CHAT,
    eos: int | list[int] | None = EOS,
    context: int = CONTEXT,
    vocabulary: int = VOCABULARY,
) -> Path:
    """A version's folder with everything that the backend reads."""
    folder.mkdir(parents=True, exist_ok=True)
    ov.save_model(network(context, vocabulary=vocabulary), folder / "openvino_model.xml", compress_to_fp16=False)
    config = {
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_size": WIDTH,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "eos_token_id": eos,
    }
    (folder / "config.json").write_text(json.dumps(config))
    word_tokenizer().save(str(folder / "tokenizer.json"))
    tokenizer_config = {"eos_token": "</s>"} if chat is None else {"eos_token": "</s>", "chat_template": chat}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder
