"""Stand-ins for NVIDIA's models on GPUs: their tensors, and answers that say what they were asked.

What they do with a request is written after `src/model.py` of the vLLM backend and `llmapi` of TensorRT-LLM; the
engines behind these need a GPU.
"""

from __future__ import annotations

from tests.server.models import ModelText
from tritonkit.repository.modelspec.engines import ENGINES, EngineName

__all__ = ["TENSORRT_LLM", "VLLM"]


def _config(engine: EngineName) -> str:
    """The engine's tensors, in the Python backend."""
    tensors = ENGINES[engine]
    kinds = {"BYTES": "STRING"}

    def written(entry: tuple[str, str, tuple[int, ...]], optional: bool = False) -> str:
        name, kind, shape = entry
        rest = " optional: true" if optional else ""
        return f'{{ name: "{name}" data_type: TYPE_{kinds.get(kind, kind)} dims: {list(shape)}{rest} }}'

    inputs = [written(tensor, index > 0) for index, tensor in enumerate(tensors.inputs)]
    outputs = [written(tensor) for tensor in tensors.outputs]
    return f"""backend: "python"
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
input [ {", ".join(inputs)} ]
output [ {", ".join(outputs)} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""


_COMMON = """import json
import pathlib
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def given(request, name, default=None):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy()


def texts(name, values):
    return pb_utils.Tensor(name, np.array([value.encode() for value in values], np.object_))


FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    # "SAY a b" is answered with " a b", any other prompt with the settings and the prompt;
    # ENDLESS FILE goes on until it is cancelled, and writes the file.
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=answer, args=(request, request.get_response_sender())).start()
        return None


def words_of(prompt, settings):
    head, said, words = prompt.partition("SAY ")
    return words.split(" ") if said else [settings, repr(prompt)]


def endless(file, sender, make):
    while not sender.is_cancelled():
        sender.send(make(" more"))
        time.sleep(0.02)
    pathlib.Path(file).write_text("cancelled")
    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("Request was cancelled")), flags=FINAL)

"""

VLLM = ModelText(
    _config("vllm"),
    _COMMON
    + """
def answer(request, sender):
    prompt = given(request, "text_input")[0].decode()
    settings = given(request, "sampling_parameters")
    stream = given(request, "stream", [False])[0]
    if not stream or not given(request, "exclude_input_in_output", [stream])[0]:
        error = pb_utils.TritonError("Error generating stream: the prompt would be repeated")
        return sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
    settings = json.loads(settings[0].decode())
    wants = {
        name: bool(given(request, "return_" + name, [False])[0])
        for name in ("finish_reason", "logprobs", "num_input_tokens", "num_output_tokens")
    }

    def make(text, reason="None", number=7):
        made = [texts("text_output", [text])]
        if wants["finish_reason"]:
            made.append(texts("finish_reason", [reason]))
        if wants["logprobs"]:
            # As vLLM has them: the token's own first.
            of_each = [{str(number): {"logprob": -0.5, "rank": 1, "decoded_token": text}}]
            made.append(texts("logprobs", [json.dumps(of_each) if "logprobs" in settings else "null"]))
        if wants["num_input_tokens"]:
            made.append(pb_utils.Tensor("num_input_tokens", np.asarray(len(prompt.split()), np.uint32)))
        if wants["num_output_tokens"]:
            made.append(pb_utils.Tensor("num_output_tokens", np.asarray([1], np.uint32)))
        return pb_utils.InferenceResponse(made)

    words = words_of(prompt, json.dumps(settings, sort_keys=True))
    if words[0] == "ENDLESS":
        return endless(words[1], sender, make)
    if words[0] == "BROKEN":
        error = pb_utils.TritonError("Error generating stream: a secret")
        return sender.send(pb_utils.InferenceResponse([texts("text_output", ["N/A"])], error=error), flags=FINAL)
    most = settings.get("max_tokens", 16)  # vLLM's
    kept = words[:most]
    for number, word in enumerate(kept):
        last = number == len(kept) - 1
        reason = ("length" if len(words) > most else "stop") if last else "None"
        sender.send(make(" " + word, reason, number), flags=FINAL if last else 0)
""",
)

TENSORRT_LLM = ModelText(
    _config("tensorrt-llm"),
    _COMMON
    + """
NAMES = ("temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "seed")


def answer(request, sender):
    prompt = given(request, "text_input")[0].decode()
    settings = {}
    for name in NAMES:
        value = given(request, "sampling_param_" + name)
        if value is not None:
            settings[name] = value.item(0)
    stop = given(request, "sampling_param_stop")
    if stop is not None:
        settings["stop"] = [each.decode() for each in stop]
    before = "" if given(request, "sampling_param_exclude_input_from_output", [False])[0] else prompt
    streams = bool(given(request, "streaming", [False])[0])
    text = before

    def make(word, reason=None):
        nonlocal text
        text += word  # the whole so far, in each response
        return pb_utils.InferenceResponse([texts("text_output", [text]), texts("finish_reason", [str(reason)])])

    words = words_of(prompt, json.dumps(settings, sort_keys=True))
    if words[0] == "ENDLESS":
        return endless(words[1], sender, make)
    for number, word in enumerate(words):
        last = number == len(words) - 1
        response = make(" " + word, "stop" if last else None)
        if streams or last:
            sender.send(response, flags=FINAL if last else 0)
""",
)
