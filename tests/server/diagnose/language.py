"""A language model and its callers, for the provocations of `tritonkit diagnose`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino

from tests.python_backends.llm_network import WORDS, network
from tests.server.at_once import at_once
from tests.server.language.test_llm import write_served
from tritonkit.client import Client
from tritonkit.errors import ClientError
from tritonkit.serve import Endpoint, serve

__all__ = ["Speaker", "language_model", "speakers"]


@dataclass(frozen=True)
class Speaker:
    """A caller that reads whole answers of a number of tokens, to prompts of another number."""

    tokens: int
    prompt: int = 1


@contextlib.contextmanager
def language_model(repository: Path, project: Path, wide: int = 0, **parameters: str) -> Iterator[Endpoint]:
    """A server of one, called `m`; by default with room for many, and nothing kept for equal beginnings.

    With a matrix of `wide` columns a step takes longer than the answers it makes take to send.
    """
    settings = {"context": "4096", "cache_mib": "8", "threads": "1", "prefix_cache": "false"} | parameters
    write_served(repository / "m", **settings)
    if wide:
        slow = network(int(settings["context"]), wide=wide)
        file = repository / "m" / "1" / "openvino_model.xml"
        openvino.save_model(slow, file, compress_to_fp16=False)
    with serve(repository, grpc_port=0, metrics_port=0, root=project) as endpoint:
        yield endpoint


@contextlib.contextmanager
def speakers(address: str, *callers: Speaker) -> Iterator[None]:
    """These callers, each of whom asks again when the answer is over; they leave at the end of the block."""

    def call(number: int, ended: threading.Event) -> None:
        caller = callers[number]
        words = [WORDS[10 + (number + place) % 150] for place in range(caller.prompt)]
        request: dict[str, Any] = {"text": " ".join(words), "max_tokens": caller.tokens, "ignore_eos": True}
        with Client(address, retry=None, breaker=None) as client:
            while not ended.is_set():
                with (
                    contextlib.suppress(ClientError),
                    client.model("m").stream(inputs=request, timeout_s=600) as replies,
                ):
                    for _ in replies:
                        if ended.is_set():
                            break

    with at_once(len(callers), call):
        yield
