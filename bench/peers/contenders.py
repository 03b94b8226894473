"""The compared servers: their start, the formats of their requests, and the settings that are tried.

A server gets its settings from the environment: MODEL, MODEL_FOLDER, MAX_BATCH, MAX_DELAY_MS, WORKERS, THREADS,
PORT (HTTP_PORT, GRPC_PORT, METRICS_PORT), as its own app.py reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CONTENDERS", "LARGEST_BATCH", "MODELS", "OURS", "PYTHON_WAYS", "Contender", "Way", "choices"]

MODELS = ("digits_network", "sentences", "resnet50")
TINY = ("digits_network",)
LARGEST_BATCH = {"digits_network": 32, "sentences": 32, "resnet50": 16}
PYTHON_WAYS = ("tritonclient", "client", "client-batched")
"""Load from Python: the rate of a program that uses a client."""


@dataclass(frozen=True)
class Way:
    """One way to ask a server.

    Args:
        name: of the row.
        format: of `traffic.FORMATS`; empty for a client in Python.
        port: which of the server's it goes to.
        connections: gRPC with a connection for each caller instead of a stream.
        socket: over Triton's own unix socket.
        open_loop: whether it is also loaded at rising rates.
        compared: whether its rate counts as the server's: JSON in place of bytes is shown, not compared.
        models: those that are called in this way.
    """

    name: str
    format: str = ""
    port: str = "PORT"
    connections: bool = False
    socket: bool = False
    open_loop: bool = True
    compared: bool = True
    models: Sequence[str] = MODELS


@dataclass(frozen=True)
class Contender:
    """A server.

    Args:
        name: on the command line and in tables; a peer's is also its folder's.
        title: with its own spelling.
        docs: the page about its settings.
        command: of the server, with names in braces for the environment's values and {bin}.
        ways: formats of requests; settings are chosen by the first.
        environment: further variables that it reads.
        tried: settings other than workers and threads, each with the values of which the better is kept.
        models: those it serves.
        variant: the form of the network that tritonkit serves; empty for a peer.
        exact: whether its answers are those of the FP32 network.
    """

    name: str
    title: str
    docs: str
    command: Sequence[str]
    ways: Sequence[Way]
    environment: Mapping[str, str] = field(default_factory=dict)
    tried: Mapping[str, Sequence[str]] = field(default_factory=dict)
    models: Sequence[str] = MODELS
    variant: str = ""
    exact: bool = True

    @property
    def ours(self) -> bool:
        """Whether it is tritonkit."""
        return bool(self.variant)


UNSET = ("ceiling", "infinity")
"""Servers with no workers or threads to set."""
DELAYS = {"MAX_DELAY_MS": ("1", "5")}
_UVICORN = (
    "{bin}/python",
    "-m",
    "uvicorn",
    "app:app",
    "--host",
    "127.0.0.1",
    "--port",
    "{PORT}",
    "--workers",
    "{WORKERS}",
    "--loop",
    "uvloop",
    "--http",
    "httptools",
    "--no-access-log",
    "--log-level",
    "warning",
)
_TRITONKIT = (
    "{bin}/python",
    "-m",
    "tritonkit",
    "serve",
    "--root",
    "{ROOT}",
    "--repository",
    "{REPOSITORY}",
    "--model",
    "{MODEL}",
    "--backend",
    "auto",
    "--http",
    "--http-port",
    "{HTTP_PORT}",
    "--grpc-port",
    "{GRPC_PORT}",
    "--metrics-port",
    "{METRICS_PORT}",
)
_OUR_WAYS = (
    Way("http", "v2", "HTTP_PORT"),
    Way("grpc", "grpc", "GRPC_PORT"),
    Way("grpc-connections", "grpc", "GRPC_PORT", connections=True, open_loop=False, models=TINY),
    Way("http-socket", "v2", "HTTP_PORT", socket=True, open_loop=False, compared=False, models=TINY),
    Way("http-json", "v2-json", "HTTP_PORT", open_loop=False, compared=False, models=TINY),
    *(Way(name, port="GRPC_PORT") for name in PYTHON_WAYS),
)

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("tritonkit", "tritonkit", "serve.md", _TRITONKIT, _OUR_WAYS, variant="onnx-fp32"),
        Contender(
            "tritonkit-best",
            "tritonkit, variant: auto",
            "choosing-a-variant.md",
            _TRITONKIT,
            _OUR_WAYS[:2],
            models=("sentences", "resnet50"),
            variant="auto",
            exact=False,
        ),
        Contender(
            "ceiling",
            "Triton with an empty backend",
            "bench.md",
            (),
            (Way("http", "v2", "HTTP_PORT"), Way("grpc", "grpc", "GRPC_PORT")),
            models=TINY,
            exact=False,
        ),
        Contender(
            "fastapi",
            "FastAPI + ONNX Runtime",
            "https://fastapi.tiangolo.com/deployment/server-workers/",
            _UVICORN,
            (Way("http", "raw"), Way("http-json", "json", open_loop=False, compared=False, models=TINY)),
            tried={"IN_POOL": ("0", "1")},
        ),
        Contender(
            "litserve",
            "LitServe",
            "https://lightning.ai/docs/litserve/features/batching",
            ("{bin}/python", "app.py"),
            (Way("http", "base64"),),
            tried=DELAYS,
        ),
        Contender(
            "bentoml",
            "BentoML",
            "https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html",
            ("{bin}/bentoml", "serve", "app:Inference", "--host", "127.0.0.1", "--port", "{PORT}"),
            (Way("http", "base64-list"),),
            {"BENTOML_DO_NOT_TRACK": "True"},
        ),
        Contender(
            "mosec",
            "mosec",
            "https://mosecorg.github.io/mosec/reference/concept.html",
            (
                "{bin}/python",
                "app.py",
                "--address",
                "127.0.0.1",
                "--port",
                "{PORT}",
                "--timeout",
                "60000",
                "--log-level",
                "warning",
            ),
            (Way("http", "mosec"),),
            tried=DELAYS,
        ),
        Contender(
            "mlserver",
            "MLServer",
            "https://mlserver.readthedocs.io/en/latest/user-guide/adaptive-batching.html",
            ("{bin}/mlserver", "start", "{SETTINGS}"),
            (Way("grpc", "grpc", "GRPC_PORT"), Way("http", "v2-json", "HTTP_PORT")),
            tried=DELAYS,
        ),
        Contender(
            "ray",
            "Ray Serve",
            "https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html",
            ("{bin}/python", "app.py"),
            (Way("http", "raw"),),
            {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0"},
            DELAYS,
        ),
        Contender(
            "pytriton",
            "PyTriton",
            "https://triton-inference-server.github.io/pytriton/latest/binding_configuration/",
            ("{bin}/python", "app.py"),
            (Way("http", "v2", "HTTP_PORT"), Way("grpc", "grpc", "GRPC_PORT")),
            tried=DELAYS,
        ),
        Contender(
            "infinity",
            "Infinity",
            "https://michaelfeil.github.io/infinity/",
            (
                "{bin}/infinity_emb",
                "v2",
                "--model-id",
                "{MODEL_FOLDER}",
                "--served-model-name",
                "sentences",
                "--engine",
                "optimum",
                "--device",
                "cpu",
                "--host",
                "127.0.0.1",
                "--port",
                "{PORT}",
                "--batch-size",
                "{MAX_BATCH}",
                "--pooling-method",
                "mean",
                "--no-model-warmup",
                "--no-vector-disk-cache",
                "--log-level",
                "warning",
            ),
            (Way("http", "openai"),),
            {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"},
            models=("sentences",),
        ),
    )
}
"""Servers by name, in the order of the tables."""

OURS = tuple(name for name, contender in CONTENDERS.items() if contender.ours)


def choices(contender: Contender, cores: int) -> list[dict[str, str]]:
    """The settings that are tried once, before the rounds; the fastest at 32 callers is measured.

    Workers times threads make the cores there are: one worker that runs on all, or one for each.
    """
    if contender.ours or contender.name in UNSET:
        return [{}]
    spread = [{"WORKERS": str(n), "THREADS": str(cores // n)} for n in sorted({1, cores})]
    values = [
        dict(zip(contender.tried, combination, strict=True)) for combination in product(*contender.tried.values())
    ]
    return [one | more for one, more in product(spread, values)]
