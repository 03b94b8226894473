"""The bench's backend that computes nothing, in a real Triton."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from bench.ceiling import add_ceiling
from bench.requests import answer_of, made_up
from tests.server.models import VECTOR, ModelText
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.errors import BuildError
from tritonkit.serve import serve

COMPILERS = ("c++", "g++", "clang++")
BATCHED = VECTOR + "dynamic_batching { }\n"


@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="needs a C++ compiler")
def test_the_ceiling_answers_like_its_model(write_server_models: Any) -> None:
    """Same inputs, names, shapes and batching; the numbers are zeros, and Triton counts the requests."""
    import grpc

    repository = write_server_models(vector=ModelText(BATCHED))
    name = add_ceiling(repository, "vector")
    with serve(repository, models=[name], grpc_port=0, metrics_port=0) as endpoint:
        with Client(endpoint.grpc) as client:
            values = np.ones((3, 4), np.float32)
            answer = client.model(name).predict(x=values)["y"]
            assert answer.shape == values.shape
            assert not answer.any()
        with grpc.insecure_channel(endpoint.grpc) as channel:
            assert made_up(channel, name)["x"][1].shape == (1, 4)

            def counts() -> tuple[int, int]:
                (stats,) = answer_of(channel, "Statistics", name).model_stats
                return stats.inference_stats.success.count, stats.inference_count

            # Triton counts after it has answered.
            eventually(lambda: counts()[0] >= 1 and counts()[1] >= 3, "the request counted")


def test_without_a_compiler_it_is_said(write_server_models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to install."""
    repository = write_server_models(vector=ModelText(BATCHED))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"apt-get install g\+\+"):
        add_ceiling(repository, "vector")
