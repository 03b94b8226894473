"""Models for the OpenAI-compatible server: language models that answer with their requests, and one that embeds.

In addition: parts of the requests to them.
"""

from __future__ import annotations

from typing import Any

from tests.server.models import ModelText

__all__ = ["CLASSIFIER", "EMBEDDER", "HEARER", "PARROT", "RERANKER", "SAMPLING", "SIMPLE", "user"]

SAMPLING: Any = {
    "temperature": 0.5,
    "top_p": 0.25,
    "seed": 7,
    "stop": ["u", "v"],
    "presence_penalty": 1,
    "frequency_penalty": -1.5,
}
"""The settings of OpenAI's API that say how tokens are chosen, none by its default."""

_INPUTS = {
    "text": "STRING",
    "messages": "STRING",
    "max_tokens": "INT32",
    "min_tokens": "INT32",
    "temperature": "FP32",
    "top_p": "FP32",
    "top_k": "INT32",
    "repetition_penalty": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "seed": "INT64",
    "ignore_eos": "BOOL",
    "logprobs": "BOOL",
}


def user(text: str) -> Any:
    """The messages of a chat with one message of the user's."""
    return [{"role": "user", "content": text}]


def _config(*names: str) -> str:
    """The contract's configuration, with some of its inputs."""
    inputs = [f'{{ name: "{name}" data_type: TYPE_{_INPUTS[name]} dims: [ 1 ] optional: true }}' for name in names]
    inputs.append('{ name: "stop" data_type: TYPE_STRING dims: [ -1 ] optional: true }')
    return f"""backend: "python"
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
input [ {", ".join(inputs)} ]
output [
  {{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "tokens" data_type: TYPE_INT64 dims: [ -1 ] }},
  {{ name: "logprobs" data_type: TYPE_FP32 dims: [ -1 ] }},
  {{ name: "finish_reason" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "prompt_tokens" data_type: TYPE_INT32 dims: [ 1 ] }}
]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""


_CODE = """import json
import pathlib
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

NAMES = (
    "text", "messages", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "seed", "stop", "ignore_eos", "logprobs",
)
FAILS = {
    "BAD": ("INVALID_ARGUMENT: the prompt is bad", "INVALID_ARG"),
    "FULL": ("UNAVAILABLE: 8 requests wait", "UNAVAILABLE"),
    "BROKEN": ("a secret", "INTERNAL"),
}


class TritonPythonModel:
    # The answer to "SAY a b" is " a b"; to any other prompt it is the settings and the prompt, word by word.
    # BAD, FULL and BROKEN fail at their place in it; ENDLESS FILE goes on until it is cancelled, and writes the file.
    def execute(self, requests):
        for request in requests:
            given = {}
            for name in NAMES:
                tensor = pb_utils.get_input_tensor_by_name(request, name)
                if tensor is not None:
                    given[name] = [
                        each.decode() if isinstance(each, bytes) else each for each in tensor.as_numpy().tolist()
                    ]
            threading.Thread(target=answer, args=(given, request.get_response_sender())).start()
        return None


def words_of(given):
    if "messages" not in given:
        prompt = given.get("text", [""])[0]  # the server's own first request has neither
    else:
        prompt = "|".join(each["role"] + ":" + each["content"] for each in json.loads(given["messages"][0]))
    words = prompt.split()
    for place, word in enumerate(words):
        if word.endswith("SAY"):  # "user:SAY" of a chat
            return prompt, words[place + 1 :]
    settings = [
        name + "=" + ",".join(str(round(x, 4) if isinstance(x, float) else x) for x in values).replace(" ", "_")
        for name, values in given.items()
        if name not in ("text", "messages")
    ]
    return prompt, settings + words


def answer(given, sender):
    prompt, words = words_of(given)
    if words and words[0] == "ENDLESS":
        endless(pathlib.Path(words[1]), sender)
        return
    most = given.get("max_tokens", [64])[0]
    reason = "length" if len(words) > most else "stop"
    words = words[:most]
    for word in given.get("stop", []):
        if word in words:
            words, reason = words[: words.index(word)], "stop"
    early = words[:1] == ["EARLY"]
    if early:
        words = words[1:]
    else:
        send(sender, given, "", [])
    for number, word in enumerate(words):
        if word in FAILS:
            text, code = FAILS[word]
            error = pb_utils.TritonError(text, getattr(pb_utils.TritonError, code))
            sender.send(pb_utils.InferenceResponse(error=error))
            break
        time.sleep(0.002)
        send(sender, given, " " + word, [number])
    else:
        if "UNENDED" not in words:
            send(sender, given, "", [], reason, len(prompt.split()))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def endless(file, sender):
    file.with_suffix(".begun").write_text("begun")
    while not sender.is_cancelled():
        send(sender, {}, " more", [1])
        time.sleep(0.02)
    file.write_text("cancelled")
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def send(sender, given, text, tokens, reason=None, prompt_tokens=None):
    made = [
        pb_utils.Tensor("text", np.array([text.encode()], object)),
        pb_utils.Tensor("tokens", np.array(tokens, np.int64)),
    ]
    if given.get("logprobs", [False])[0]:
        made.append(pb_utils.Tensor("logprobs", np.array([-0.5 * token for token in tokens], np.float32)))
    if reason is not None:
        made.append(pb_utils.Tensor("finish_reason", np.array([reason.encode()], object)))
        made.append(pb_utils.Tensor("prompt_tokens", np.array([prompt_tokens], np.int32)))
    sender.send(pb_utils.InferenceResponse(made))
"""

PARROT = ModelText(_config(*_INPUTS), _CODE)
SIMPLE = ModelText(_config("text"), _CODE)
"""One that takes no chats, and hardly a setting."""
EMBEDDER = ModelText(
    """backend: "python"
max_batch_size: 8
input { name: "text" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "embedding" data_type: TYPE_FP32 dims: [ 3 ] }
instance_group [ { kind: KIND_CPU count: 1 } ]
""",
    """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # A text's length, the number of its first letter, and a third, which no decimal number is.
    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().ravel()
            rows = [[len(text), text[0], 1 / 3] for text in texts]
            made = pb_utils.Tensor("embedding", np.array(rows, np.float32))
            answers.append(pb_utils.InferenceResponse([made]))
        return answers
""",
)


def _of_bytes(inputs: tuple[str, ...], outputs: dict[str, tuple[str, int]], rows: str) -> ModelText:
    """A batching model with BYTES inputs of one item; `rows` makes its outputs from the inputs, lists of bytes."""
    listed = ", ".join(f'{{ name: "{name}" data_type: TYPE_STRING dims: [ 1 ] }}' for name in inputs)
    made = ", ".join(
        f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {size} ] }}' for name, (kind, size) in outputs.items()
    )
    return ModelText(
        f"""backend: "python"
max_batch_size: 8
input [ {listed} ]
output [ {made} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
""",
        f"""import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = {{tensor.name(): tensor.as_numpy().ravel().tolist() for tensor in request.inputs()}}
        made = self.rows(**given)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in made.items()])

    def rows(self, {", ".join(inputs)}):
        return {rows}
""",
    )


RERANKER = _of_bytes(
    ("text", "text_pair"),
    {"scores": ("FP32", 1)},
    '{"scores": np.array([[pair.count(one)] for one, pair in zip(text, text_pair)], np.float32)}',
)
"""The score is how often the document has the query."""
CLASSIFIER = _of_bytes(
    ("text",),
    {"label": ("STRING", 2), "score": ("FP32", 2)},
    '{"label": np.array([[one[:1], b"rest"] for one in text], object),'
    ' "score": np.array([[0.75, 0.25]] * len(text), np.float32)}',
)
"""The label is the first letter."""
HEARER = _of_bytes(
    ("audio",), {"text": ("STRING", 1)}, '{"text": np.array([[b"%d bytes" % len(one)] for one in audio], object)}'
)
"""It hears how large a file is."""
