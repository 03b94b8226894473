"""`tritonkit new --hf` for texts: a tokenizer in front of the network, and the step that reads its outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tritonkit.repository.scaffold.hf_checkpoint import AUTO_CLASSES, CHECKPOINT, TOWERS, Encoder
from tritonkit.repository.scaffold.hf_parts import Parts, label_parts

__all__ = ["text_parts", "text_tower"]

_TEXT = "The quick brown fox jumps over the lazy dog."
_LONGEST = 512
"""Tokens that a new model takes at most, even if its network was made for more."""
_STRIDE = 128
"""Tokens that windows of a long text share, at most half of a window, as in transformers' question answering."""
_SHORTEST = 2
"""Tokens of the shortest text: its start and its end."""
_OFFSET_BY_PADDING = re.compile(r"(xlm-)?roberta|camembert|longformer|data2vec-text|ibert|xmod|luke|esm$")
"""Types of networks whose positions begin behind the number of the padding token, as RoBERTa's do."""
_MPNET_OFFSET = 2
"""Positions in front of the first token, whatever number MPNet's padding has."""
_MEAN = "(output.last_hidden_state * {0}[..., None]).sum(1) / {0}.sum(1, keepdim=True)"
_POOLING = {
    "mean": _MEAN.format("attention_mask"),
    "cls": "output.last_hidden_state[:, 0]",
    "max": "output.last_hidden_state.masked_fill(attention_mask[..., None] == 0, -torch.inf).amax(1)",
    "lasttoken": "output.last_hidden_state[torch.arange(len(attention_mask)), attention_mask.sum(1) - 1]",
    "weightedmean": _MEAN.format("(attention_mask * attention_mask.cumsum(1))"),
    "mean_sqrt_len_tokens": "(output.last_hidden_state * attention_mask[..., None]).sum(1)"
    " / attention_mask.sum(1, keepdim=True).sqrt()",
}
"""Mode of sentence-transformers -> the vector in Python."""
_LEGACY_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}


def text_parts(encoder: Encoder) -> Parts:
    """The parts for a network of texts."""
    if encoder.task == "body":
        return _embedding(encoder)
    return _TASKS[encoder.task](encoder)


def text_tower(encoder: Encoder) -> Parts:
    """The tower of texts, whose vectors have length 1."""
    tower = TOWERS[encoder.config.model_type]
    part = replace(encoder, config=encoder.config.text_config)
    base = _base(part, {"embedding": {"dtype": "FP32", "shape": [tower.width(encoder.config, "text_config")]}})
    more: dict[str, Any] = {}
    if not tower.fixed:  # CLIP finds the end of a text by its number, which may be the largest one
        free = base.free_axes["length"]
        base = replace(base, free_axes={"length": {**free, "pad": dict.fromkeys(free["pad"], 0)}})
    else:
        length = _length(part)
        more = {"buckets": [length]}
        base = replace(base, free_axes={}, inputs={"input_ids": {"dtype": "INT64", "shape": [length]}})
    return replace(
        base,
        loader=tower.text,
        pipeline=[_tokenize(part, **more), "network"],
        forward=f"output.{tower.text_vector}",
        normalized=True,
        quality=["metric: cosine", 'samples: {jsonl: samples.jsonl}   # lines such as {"text": ...}'],
    )


def _sequences(encoder: Encoder) -> Parts:
    """Classes of a text, or the score of a pair of texts where there is one label, as a cross-encoder has."""
    if len(encoder.labels) == 1:
        return _pairs(encoder)
    labels = label_parts(encoder.labels, encoder.config)
    return replace(
        _base(encoder, {"logits": {"dtype": "FP32", "shape": [len(encoder.labels)]}}),
        pipeline=[_tokenize(encoder), "network", labels.step],
        files=labels.files,
        quality=["metric: accuracy", "samples: {csv: samples.csv}   # columns text and label"],
    )


def _pairs(encoder: Encoder) -> Parts:
    return replace(
        _base(encoder, {"score": {"dtype": "FP32", "shape": [1]}}, pair=True),
        pipeline=[_tokenize(encoder, pair=True, **_types(encoder)), "network"],
        forward=_activation(encoder).format("output.logits"),
        quality=["metric: ndcg_10", "samples: {csv: samples.csv, group: text}   # columns text, text_pair and label"],
    )


def _tokens(encoder: Encoder) -> Parts:
    """Entities of a text with their characters; labels of the kind B-PER and I-PER are joined."""
    labels = label_parts(encoder.labels, encoder.config)
    return replace(
        _base(encoder, {"logits": {"dtype": "FP32", "shape": ["length", len(encoder.labels)]}}),
        pipeline=[
            _tokenize(encoder, offsets=True),
            "network",
            {"step": "aggregate_tokens", "parameters": {"labels": "labels.txt"}},
        ],
        files=labels.files,
        quality=["metric: accuracy", "samples: data:samples   # a function of data.py: docs/spec.md"],
        notes=_windows(encoder, "aggregate_tokens"),
    )


def _answers(encoder: Encoder) -> Parts:
    """The answer to a question, `text`, in a context, `text_pair`, which is cut to the length that fits."""
    tokenize = _tokenize(encoder, pair=True, offsets=True, truncation="only_second", **_types(encoder))
    return replace(
        _base(
            encoder, {f"{end}_logits": {"dtype": "FP32", "shape": ["length"]} for end in ("start", "end")}, pair=True
        ),
        pipeline=[tokenize, "network", {"step": "best_span", "parameters": {"k": 1}}],
        quality=[
            "metric: exact_match",
            "samples: {csv: samples.csv}   # columns text, text_pair, label",
        ],
        example={"text": {"text": "What does the fox jump over?"}, "text_pair": {"text": _TEXT}},
        notes=_windows(encoder, "best_span"),
    )


def _windows(encoder: Encoder, step: str) -> list[str]:
    """A comment that says how a longer text is read whole."""
    stride = min(_length(encoder) // 2, _STRIDE)
    return [
        "# A longer text is cut. To read it in overlapping windows, one text to a request, add `windows: true, stride:"
        f" {stride}`",
        f"# to the parameters of tokenize, and `windows: true` to those of {step}.",
    ]


def _activation(encoder: Encoder) -> str:
    """The function from logit to score, as Python; sentence-transformers' default is the sigmoid."""
    facts = getattr(encoder.config, "sentence_transformers", None)
    named = facts.get("activation_fn") if isinstance(facts, dict) else None
    path = named or getattr(encoder.config, "sbert_ce_default_activation_function", None)
    name = str(path or "Sigmoid").rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise encoder.refusal(
            "config.json", f"the activation {path}", f"one of {', '.join(_ACTIVATIONS)}", "serve it with --torch"
        )
    return _ACTIVATIONS[name]


_ACTIVATIONS = {"Sigmoid": "torch.sigmoid({})", "Identity": "{}"}


def _embedding(encoder: Encoder) -> Parts:
    """The network pools its tokens itself: only the vectors leave it, and they are what a metric compares."""
    mode, normalized = _pooling(encoder)
    return replace(
        _base(encoder, {"embedding": {"dtype": "FP32", "shape": [encoder.config.hidden_size]}}),
        pipeline=[_tokenize(encoder, **_prefix(encoder)), "network"],
        forward=_POOLING[mode],
        normalized=normalized,
        quality=["metric: cosine", 'samples: {jsonl: samples.jsonl}   # lines such as {"text": ...}'],
        notes=_prompts(encoder),
    )


def _prompts(encoder: Encoder) -> list[str]:
    """A comment with the prompts that are not put before each text by default."""
    prompts, default = _all_prompts(encoder)
    others = {name: text for name, text in prompts.items() if text and name != default}
    if not others:
        return []
    # JSON keeps a comment in its line: it escapes line breaks of every kind.
    return ["# Prompts of the checkpoint, for the parameter prefix of tokenize:", f"# {json.dumps(others)}"]


def _prefix(encoder: Encoder) -> dict[str, str]:
    prompts, default = _all_prompts(encoder)
    prompt = prompts.get(default) if default is not None else None
    return {"prefix": prompt} if prompt else {}


def _all_prompts(encoder: Encoder) -> tuple[dict[str, str], str | None]:
    """The prompts of the checkpoint by name, and the name of the default one."""
    file = "config_sentence_transformers.json"
    facts = encoder.read(file)
    prompts, default = facts.get("prompts") or {}, facts.get("default_prompt_name")
    texts = prompts.values() if isinstance(prompts, dict) else [prompts]
    if not all(isinstance(text, str) for text in texts):
        raise encoder.refusal(f"{file} prompts", repr(prompts)[:120], "an object with a text for each name")
    if not isinstance(default, str | None):
        raise encoder.refusal(f"{file} default_prompt_name", repr(default)[:120], "the name of a prompt")
    return prompts, default


def _pooling(encoder: Encoder) -> tuple[str, bool]:
    """The mode of pooling and whether vectors get length 1: as modules.json says, else the mean."""
    kinds = dict(encoder.modules)
    if unknown := [kind for kind in kinds if kind not in _MODULES]:
        raise encoder.refusal(
            "modules.json", f"a module {unknown[0]}", f"only {', '.join(_MODULES)}", "serve it with --torch or --onnx"
        )
    if "Pooling" not in kinds:
        return "mean", "Normalize" in kinds
    file = f"{kinds['Pooling']}/config.json"
    facts = encoder.read(file)
    modes = facts.get("pooling_mode") or [mode for key, mode in _LEGACY_POOLING.items() if facts.get(key)]
    names = [str(mode) for mode in (modes if isinstance(modes, list) else [modes])]
    if len(names) != 1 or names[0] not in _POOLING:
        raise encoder.refusal(file, f"pooling {' and '.join(names) or 'none'}", f"one of {', '.join(_POOLING)}")
    return names[0], "Normalize" in kinds


_MODULES = ("Transformer", "Pooling", "Normalize")
_TASKS: dict[str, Callable[[Encoder], Parts]] = {
    "SEQUENCE_CLASSIFICATION": _sequences,
    "TOKEN_CLASSIFICATION": _tokens,
    "QUESTION_ANSWERING": _answers,
}


def _base(encoder: Encoder, outputs: dict[str, Any], pair: bool = False) -> Parts:
    """The network with its inputs; `pair` says whether texts come in pairs."""
    pad = encoder.config.pad_token_id
    inputs = {"input_ids": pad if isinstance(pad, int) and pad >= 0 else 0, "attention_mask": 0}
    inputs |= {"token_type_ids": 0} if pair and _types(encoder) else {}
    return Parts(
        loader=AUTO_CLASSES.get(encoder.task, "AutoModel"),
        inputs={name: {"dtype": "INT64", "shape": ["length"]} for name in inputs},
        outputs=outputs,
        free_axes={"length": {"min": _SHORTEST, "max": _length(encoder), "pad": inputs}},
        pipeline=(),
        example={"text": {"text": _TEXT}} | ({"text_pair": {"text": _TEXT}} if pair else {}),
        quality=(),
        carried=[encoder.folder / "tokenizer.json"],
    )


def _types(encoder: Encoder) -> dict[str, bool]:
    """The parameter of tokenize for a network that tells the texts of a pair apart; a single text needs no types."""
    several = getattr(encoder.config, "type_vocab_size", 0) > 1
    return {"token_type_ids": True} if several and "token_type_ids" in encoder.tokenizer.model_input_names else {}


def _tokenize(encoder: Encoder, **more: Any) -> dict[str, Any]:
    parameters = {"tokenizer": f"{CHECKPOINT}/tokenizer.json", "max_length": _length(encoder), **more}
    return {"step": "tokenize", "parameters": parameters}


def _length(encoder: Encoder) -> int:
    """Most tokens of a text: what the checkpoint's tools use, and no more than the network has positions for."""
    chosen = encoder.read("sentence_bert_config.json").get("max_seq_length")
    lengths = [chosen, encoder.tokenizer.model_max_length, _positions(encoder), _LONGEST]
    return int(min(length for length in lengths if isinstance(length, int | float) and length >= _SHORTEST))


def _positions(encoder: Encoder) -> int | None:
    """Tokens that the network has positions for; None if it does not count them."""
    config = encoder.config
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    if _OFFSET_BY_PADDING.match(config.model_type):
        padding = config.pad_token_id
        if not isinstance(padding, int) or padding < 0:
            raise encoder.refusal(
                "config.json pad_token_id", str(padding), f"the number of the padding token, as {config.model_type} has"
            )
        positions -= padding + 1
    elif config.model_type == "mpnet":
        positions -= _MPNET_OFFSET
    if positions < _SHORTEST:
        raise encoder.refusal(
            "config.json max_position_embeddings",
            f"room for {positions} tokens",
            f"room for {_SHORTEST} tokens at least, and in front of them for the position of padding",
        )
    return positions
