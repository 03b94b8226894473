"""REST calls through the gateway from a client without retries."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import numpy as np
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.chaos.known import Known, Question
    from bench.chaos.stack import Running

__all__ = ["RestCaller", "body", "decoded"]

_TIMEOUT_S = 30.0
_LENGTH = "Inference-Header-Content-Length"
_STATUSES = {502: "unavailable", 503: "unavailable", 504: "deadline", 429: "overloaded"}


class RestCaller:
    """A client of the gateway whose key has a rate limit, so that the limiter decides on each call."""

    def __init__(self, running: Running, truth: Known) -> None:
        self._questions = truth.questions
        self.numbers = list(range(len(truth.questions)))
        self._url = f"https://{running.address}"
        self._tls = ssl.create_default_context(cafile=str(running.authority))
        self._headers = {"x-api-key": running.rated_key}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(_TIMEOUT_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, number: int) -> tuple[str, Mapping[str, Any], str]:
        """The cause of a failure (empty: there is none), the outputs, and the words of the failure."""
        question = self._questions[number]
        data, headers = body(question)
        url = f"{self._url}/v2/models/{question.model}/infer"
        try:
            async with self._session.post(url, data=data, headers=headers, ssl=self._tls) as answer:
                text = await answer.read()
                if answer.status == 200:
                    return "", decoded(text, answer.headers), ""
                cause = _STATUSES.get(answer.status, f"HTTP {answer.status}")
                return cause, {}, f"HTTP {answer.status} {text[:200].decode(errors='replace')}"
        except aiohttp.ClientConnectorError as error:
            return "connection lost", {}, str(error)
        except TimeoutError as error:
            return "deadline", {}, repr(error)
        except aiohttp.ClientError as error:
            return "connection lost", {}, repr(error)


def body(question: Question) -> tuple[bytes, dict[str, str]]:
    """A request as JSON with its tensor's bytes behind it, and its headers."""
    item = question.item
    if isinstance(item, np.ndarray):
        datatype, shape, raw = "FP32", list(item.shape), item.tobytes()
    else:
        text = item.encode() if isinstance(item, str) else bytes(item)
        datatype, shape, raw = "BYTES", [1, 1], len(text).to_bytes(4, "little") + text
    tensor = {
        "name": question.input,
        "shape": shape,
        "datatype": datatype,
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + raw, {_LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}


def decoded(text: bytes, headers: Any) -> dict[str, Any]:
    """The outputs of an answer in that form; header names may have any case."""
    length = int(headers[_LENGTH])
    outputs, at = {}, length
    for output in json.loads(text[:length])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        outputs[output["name"]] = _tensor(output, text[at : at + size])
        at += size
    return outputs


def _tensor(output: Mapping[str, Any], raw: bytes) -> Any:
    if output["datatype"] == "BYTES":
        return deserialize_bytes_tensor(raw).reshape(output["shape"])
    return np.frombuffer(raw, triton_to_np_dtype(output["datatype"])).reshape(output["shape"])
