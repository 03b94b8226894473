"""Requests to each kind of language model, and its replies, as OpenAI's API has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tritonkit.client import language_models
from tritonkit.client.language_models import TextTensors, text_tensors
from tritonkit.openai.piece import Piece
from tritonkit.openai.problems import Problem, invalid

if TYPE_CHECKING:
    from tritonkit.client import Reply
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["OWN", "Dialect", "Read", "dialect_of"]

Read = Callable[["Reply"], Piece]
_LEAST_LOGPROB = -9999.0
"""JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The requests and replies of one kind of language model.

    Args:
        tensors: the kind's tensors.
        translated: the function that makes a choice's inputs from the requested values, by the names of `Sampled` and
            `text` or `messages`. It raises a `Problem` for values that the kind does not support. None: these are the
            model's own names.
        reader: the function that makes a reader of the replies to the choice of this number.
    """

    tensors: TextTensors
    translated: Callable[[Mapping[str, Any], ModelSignature], dict[str, Any]] | None
    reader: Callable[[int], Read]


def dialect_of(signature: ModelSignature) -> Dialect | None:
    """The dialect of a language model; None for any other model."""
    tensors = text_tensors(signature)
    return next((dialect for dialect in _DIALECTS if dialect.tensors is tensors), None)


def _first(reply: Reply, name: str) -> Any:
    outputs = reply.outputs
    return outputs[name].ravel()[0] if name in outputs and outputs[name].size else None


def _text(reply: Reply, name: str) -> str:
    return (_first(reply, name) or b"").decode("utf-8", "replace")


# -- the project's own


def _own(choice: int) -> Read:
    def read(reply: Reply) -> Piece:
        outputs = reply.outputs
        return Piece(
            choice,
            _text(reply, "text"),
            tuple(outputs["tokens"].ravel().tolist()) if "tokens" in outputs else (),
            tuple(outputs["logprobs"].ravel().tolist()) if "logprobs" in outputs else (),
            _text(reply, "finish_reason") or None,
            int(_first(reply, "prompt_tokens") or 0),
        )

    return read


# -- vLLM


def _to_vllm(settings: Mapping[str, Any], signature: ModelSignature) -> dict[str, Any]:
    """`sampling_parameters` has vLLM's SamplingParams as JSON, which has the same names."""
    sampling = {name: value for name, value in settings.items() if name not in ("text", "logprobs")}
    parameters = {name: value if name == "stop" else value[0] for name, value in sampling.items()}
    if parameters.get("top_k") == 0:
        parameters["top_k"] = -1  # older versions reject 0
    _check_least(parameters)
    if settings.get("logprobs"):
        parameters["logprobs"] = 0  # only the token itself
    extras = ["finish_reason", "num_input_tokens", "num_output_tokens"]
    returned = [f"return_{name}" for name in (*extras, *(["logprobs"] if "logprobs" in settings else []))]
    flags = ["stream", "exclude_input_in_output", *(name for name in returned if name in signature.inputs)]
    inputs = {"text_input": settings["text"], "sampling_parameters": [json.dumps(parameters)]}
    return inputs | {name: [True] for name in flags}


def _check_least(parameters: Mapping[str, Any]) -> None:
    """Refuse a request that vLLM would report as its own failure."""
    least, most = parameters.get("min_tokens"), parameters.get("max_tokens")
    if least is not None and most is not None and least > most:
        raise invalid("min_tokens: it is more than max_tokens", "min_tokens", "invalid_value")


def _vllm(choice: int) -> Read:
    def read(reply: Reply) -> Piece:
        tokens, logprobs = _logprobs(reply)
        return Piece(
            choice,
            _text(reply, "text_output"),
            tokens,
            logprobs,
            _reason(reply),
            int(_first(reply, "num_input_tokens") or 0),
            int(_first(reply, "num_output_tokens") or 0),
        )

    return read


def _logprobs(reply: Reply) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """JSON: for each token a mapping from numbers of tokens, its own first, to their logarithms."""
    listed = json.loads(_text(reply, "logprobs") or "null") or []
    own = [next(iter(entry.items())) for entry in listed if entry]
    return (
        tuple(int(number) for number, _ in own),
        tuple(max(float(value["logprob"]), _LEAST_LOGPROB) for _, value in own),
    )


def _reason(reply: Reply) -> str | None:
    """The reason why an answer has ended: Python's `None` as text until then."""
    reason = _text(reply, "finish_reason")
    if reason in ("", "None"):
        return None
    if reason not in ("stop", "length"):
        raise Problem(500, "the model stopped before its answer was complete", code="model_failed")
    return reason


# -- TensorRT-LLM

_TO_TENSORRT_LLM = {
    name: f"sampling_param_{name}"
    for name in ("max_tokens", "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "stop")
}


def _to_tensorrt_llm(settings: Mapping[str, Any], signature: ModelSignature) -> dict[str, Any]:
    inputs: dict[str, Any] = {"text_input": settings["text"]}
    for name, value in settings.items():
        if name == "text":
            continue
        theirs = _TO_TENSORRT_LLM.get(name)
        if theirs is None or theirs not in signature.inputs:
            message = f"{name}: the engine behind the model {signature.name!r} does not support it"
            raise invalid(message, name, "unsupported_parameter")
        inputs[theirs] = value
    if settings.get("seed", [0])[0] < 0:
        raise invalid("seed: this engine takes no seed below 0", "seed", "invalid_value")
    flags = ("streaming", "sampling_param_exclude_input_from_output", "return_finish_reason")
    return inputs | {name: [True] for name in flags if name in signature.inputs}


def _tensorrt_llm(choice: int) -> Read:
    """Each reply has the whole text so far, and no number of tokens."""
    sent = ""

    def read(reply: Reply) -> Piece:
        nonlocal sent
        text, reason = _text(reply, "text_output"), _reason(reply)
        if reason is None:
            text = text.rstrip("\N{REPLACEMENT CHARACTER}")  # an incomplete character
        added = text.removeprefix(sent) if text.startswith(sent) else ""
        sent += added
        return Piece(choice, added, finish_reason=reason)

    return read


OWN = Dialect(language_models.OWN, None, _own)
_DIALECTS = (
    OWN,
    Dialect(language_models.VLLM, _to_vllm, _vllm),
    Dialect(language_models.TENSORRT_LLM, _to_tensorrt_llm, _tensorrt_llm),
)
