"""Triton's backend `llm`: a language model whose requests share one running batch, with answers as streams.

Triton finds this folder under the backend's name and runs it for every model whose config says `backend: "llm"`
("Python-based backend"). In the `args` it gives, `model_repository` is the folder of the model itself.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils
from backend_config import ModelError, check_served_here
from llm_chat import read_chat
from llm_config import read_json, read_settings
from llm_engine import Engine, Failure, Overloaded, Sequence, pipeline_maker
from llm_metrics import Counts, Metrics
from llm_pieces import marks_of, pieces_of
from llm_request import Reader, RequestError, Task
from llm_sending import Sending
from llm_text import AnswerText
from llm_tokenizer import refusal
from llm_vocabulary import width_of
from llm_watch import Watch
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_config import Settings

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_STATUS = {"INVALID_ARG": "INVALID_ARGUMENT"}
"""Error codes that gRPC and pb_utils name differently."""


class TritonPythonModel:
    """One language model, with its engine and its threads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the model; raises TritonModelException if it cannot be served."""
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        try:
            check_served_here(config, args["model_instance_kind"], "llm")
            self._settings = read_settings(config, folder)
            self._tokenizer = _tokenizer(folder)
            pieces = _pieces(self._tokenizer, folder, self._settings)
            self._reader = Reader(self._settings, self._tokenizer, read_chat(folder), pieces is not None)
        except ModelError as refused:
            message = f"model '{args['model_name']}': {refused}"
            raise pb_utils.TritonModelException(message) from refused
        # The engine's thread waits at most this long (seconds) for another one.
        sys.setswitchinterval(0.0005)
        self._marks = marks_of(self._tokenizer)
        self._counts = Counts()
        self._metrics = _metrics(args)
        self._sending = Sending(pb_utils.Logger.log_error)
        make = pipeline_maker(self._settings, str(folder), pieces)
        self._engine = Engine(self._settings, make, self._sending.put, self._counts)
        self._sending.start(self._engine)
        self._watch = Watch(self._engine, self._write_metrics, pb_utils.Logger.log_error)
        pb_utils.Logger.log_info(f"model '{args['model_name']}': {self._settings}")

    def execute(self, requests: list[Any]) -> None:
        """Begin to answer the requests; each gets its own answer or its own error."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._begin(request, sender)
            except RequestError as refused:
                self._refuse(sender, Failure("INVALID_ARG", str(refused), "invalid"))
            except Overloaded as refused:
                self._refuse(sender, Failure("UNAVAILABLE", str(refused), "refused"))
            except Exception as error:
                pb_utils.Logger.log_error(f"a request could not be read: {error!r}")
                failure = Failure("INTERNAL", f"the request could not be read: {error}")
                self._refuse(sender, failure)

    def finalize(self) -> None:
        """End the running sequences, and free the engine."""
        self._watch.close()
        self._engine.close()
        self._sending.close()
        if self._metrics:
            self._metrics.close()

    def _begin(self, request: Any, sender: Any) -> None:
        now = time.monotonic()
        task = self._reader.read({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
        silent = () if task.ignore_eos else self._settings.stop_tokens
        text = AnswerText(self._tokenizer, silent, task.stop, self._marks if task.has_tools else None)
        timeout_us = request.timeout()
        deadline = now + timeout_us / 1e6 if timeout_us else None
        outputs = frozenset(request.requested_output_names())
        reply = Responses(sender, task, text, deadline, outputs, self._count_end)
        self._engine.submit(Sequence(task, now, reply))
        self._watch.wake()

    def _refuse(self, sender: Any, failure: Failure) -> None:
        self._count_end(failure.outcome)
        _fail(sender, failure)

    def _count_end(self, outcome: str) -> None:
        self._counts.end(outcome)
        self._watch.wake()  # the engine may be done already, and its metrics written

    def _write_metrics(self) -> bool:
        """Whether the metrics still change, read before they are written: later changes are written the next time."""
        busy = self._counts.running + self._counts.waiting > 0
        if self._metrics:
            self._metrics.write(self._counts)
        return busy


class Responses:
    """The responses to one request.

    Triton forgets a request with its last response, and reads freed memory if it is then asked whether the request was
    cancelled. So one of the two waits for the other.

    Args:
        count_end: called with the outcome, once, before the last response leaves.
    """

    def __init__(
        self,
        sender: Any,
        task: Task,
        text: AnswerText,
        deadline: float | None,
        outputs: frozenset[str],
        count_end: Callable[[str], None],
    ) -> None:
        self._sender = sender
        self._task = task
        self._outputs = outputs
        self._count_end = count_end
        self.text = text
        self.deadline = deadline
        self._ending = Lock()
        self._ended = False

    def send(self, text: str, tokens: list[int], logprobs: list[float], end: str | None) -> None:
        """Send one response with few tensors, because each costs about as much as everything else for a token."""
        values: dict[str, np.ndarray[Any, Any]] = {
            "text": np.array([text.encode()], np.object_),
            "tokens": np.array(tokens, np.int64),
        }
        if self._task.logprobs:
            values["logprobs"] = np.array(logprobs, np.float32)
        if end is not None:
            values["finish_reason"] = np.array([end.encode()], np.object_)
            values["prompt_tokens"] = np.array([len(self._task.prompt)], np.int32)
        tensors = [pb_utils.Tensor(name, value) for name, value in values.items() if name in self._outputs]
        response = pb_utils.InferenceResponse(tensors)
        if end is None:
            self._sender.send(response)
            return
        with self._ending:
            self._ended = True
            self._count_end(end)
            self._sender.send(response, flags=_FINAL)

    def fail(self, failure: Failure) -> None:
        """Send an error as the last response, unless one was sent."""
        with self._ending:
            if not self._ended:
                self._ended = True
                self._count_end(failure.outcome)
                _fail(self._sender, failure)

    def is_cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        with self._ending:
            return not self._ended and bool(self._sender.is_cancelled())


def _fail(sender: Any, failure: Failure) -> None:
    # Triton 2.51 gives an error in a stream no status, so callers read it in the text.
    name = _STATUS.get(failure.code, failure.code)
    code = getattr(pb_utils.TritonError, failure.code)
    error = pb_utils.TritonError(f"{name}: {failure.message}", code)
    sender.send(pb_utils.InferenceResponse([], error), flags=_FINAL)


def _tokenizer(folder: Path) -> Tokenizer:
    if why := refusal(read_json(folder / "tokenizer.json")):
        raise ModelError(f"{folder / 'tokenizer.json'}: {why}")
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises no class of its own
        raise ModelError(f"{folder / 'tokenizer.json'}: {error}") from error
    # A file may request these for training; a prompt is one text, and one too long is refused.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _pieces(tokenizer: Tokenizer, folder: Path, settings: Settings) -> list[bytes] | None:
    """Each token's bytes; None if answers of this model cannot be held to a grammar.

    The engine masks as many logits as there are pieces without looking how many there are.
    """
    if not settings.stop_tokens or width_of(folder / "openvino_model.xml") != settings.vocabulary:
        return None
    return pieces_of(tokenizer, read_json(folder / "tokenizer.json"), settings.vocabulary)


def _metrics(args: dict[str, str]) -> Metrics | None:
    """The model's metrics; None if the server has none."""
    try:
        return Metrics(pb_utils, args["model_name"], args["model_version"])
    except Exception as error:
        pb_utils.Logger.log_info(f"model '{args['model_name']}': served without metrics: {error}")
        return None
