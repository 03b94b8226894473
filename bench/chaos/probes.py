"""Whether a part of the stack answers right again, by requests to the part itself."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import redis

from bench.chaos.known import STREAM, streamed
from bench.chaos.rest import body, decoded
from tritonkit.client import Client, Secret
from tritonkit.errors import ClientError
from tritonkit.operate.gateway.shared_limits import SOCKET
from tritonkit.operate.limiter.messages import METHOD, SERVICE, messages
from tritonkit.operate.stack.state import FOLDER
from tritonkit.serve.ready import http_answers

if TYPE_CHECKING:
    from bench.chaos.known import Known
    from bench.chaos.parts import Member
    from bench.chaos.stack import Running

__all__ = ["answers_right"]

_TIMEOUT_S = 2.0
_FAILURES = (ClientError, OSError, ValueError, redis.RedisError, KeyError)


def answers_right(running: Running, truth: Known, member: Member) -> bool:
    """Whether a process or its successor does its work again."""
    probes = {
        "gateway": lambda: _gateway(running, truth),
        "rest": lambda: _rest(running, truth, member),
        "tritonserver": lambda: _replica(running, truth, member),
        "stub": lambda: _replica(running, truth, member),
        "limiter": lambda: _limiter(running.root / FOLDER / "gateway"),
        "prometheus": lambda: _prometheus(running),
        "redis": lambda: _redis(running, member),
    }
    try:
        return bool(probes[member.kind]())
    except _FAILURES:
        return False


def _gateway(running: Running, truth: Known) -> bool:
    with Client(
        f"grpcs://{running.address}",
        tls=running.tls,
        api_key=Secret(running.key),
        retry=None,
        breaker=None,
        timeout_s=_TIMEOUT_S,
    ) as client:
        return _asked(client, truth, "digits")


def _replica(running: Running, truth: Known, member: Member) -> bool:
    """Whether all models of a replica answer right, the stream included."""
    address = running.replicas()[member.replica]["grpc"]
    with Client(address, retry=None, breaker=None, timeout_s=_TIMEOUT_S) as client:
        models = sorted({question.model for question in truth.questions})
        x = np.arange(4, dtype=np.float32)
        with client.model(STREAM).stream(x=x, timeout_s=_TIMEOUT_S) as replies:
            answers = [reply["y"].tolist() for reply in replies]
        right = answers == [answer.tolist() for answer in streamed(x)]
        return right and all(_asked(client, truth, model) for model in models)


def _asked(client: Client, truth: Known, model: str) -> bool:
    number = truth.of(model)[0]
    question = truth.questions[number]
    reply = client.model(model).predict(**{question.input: question.item}).outputs
    return truth.right(number, reply)


def _rest(running: Running, truth: Known, member: Member) -> bool:
    """Whether a call through this HTTP proxy is answered right."""
    number = truth.of("digits")[0]
    data, headers = body(truth.questions[number])
    url = f"http://{running.replicas()[member.replica]['http']}/v2/models/digits/infer"
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - of this stack
        return truth.right(number, decoded(answer.read(), answer.headers))


def _limiter(folder: Path) -> bool:
    """Whether the limiter answers an empty request, which needs no Redis."""
    import grpc

    request, response = messages()
    with grpc.insecure_channel(f"unix:{folder / SOCKET}") as channel:
        ask = channel.unary_unary(f"/{SERVICE}/{METHOD}", request.SerializeToString, response.FromString)
        try:
            return bool(ask(request(domain="gateway"), timeout=_TIMEOUT_S).overall_code)
        except grpc.RpcError:
            return False


def _prometheus(running: Running) -> bool:
    address = running.part("prometheus")["address"].removeprefix("http://")
    return http_answers(address, "/-/ready")


def _redis(running: Running, member: Member) -> bool:
    counting = member.instance == "counting"
    url = running.counting_url if counting else running.part("redis")["address"]
    with redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S) as client:
        return bool(client.ping())
