"""The rendering for TensorRT-LLM's LLM API, loaded by a real Triton.

In place of NVIDIA's model, which needs a GPU, there is one that reads the same file and says what it was told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import tritonkit_here
from tests.repository.optimize.checkpoints import write_checkpoint
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import Endpoint, serve

THEIRS = """
import json
import pathlib
import numpy as np
import triton_python_backend_utils as pb_utils
from helpers import streaming


def read():
    return json.loads((pathlib.Path(pb_utils.get_model_dir()) / "model.yaml").read_text())


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, config):
        given = read()["triton_config"]
        config.set_model_transaction_policy(dict(decoupled=bool(given["decoupled"])))
        config.set_max_batch_size(int(given["max_batch_size"]))
        return config

    def initialize(self, args):
        self.where = read()["model"]

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            words = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode().split()
            for word in [*words, self.where] if streaming(request) else []:
                text = pb_utils.Tensor("text_output", np.array([f"{word} ".encode()], np.object_))
                sender.send(pb_utils.InferenceResponse([text]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
HELPERS = """
import triton_python_backend_utils as pb_utils


def streaming(request):
    found = pb_utils.get_input_tensor_by_name(request, "streaming")
    return found is not None and bool(found.as_numpy()[0])
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """A Triton with a repository that was built for TensorRT-LLM."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "model.py").write_text(THEIRS)
    (theirs / "helpers.py").write_text(HELPERS)
    monkeypatch.setenv("TRITONKIT_LLMAPI", str(theirs))
    folder = tmp_path / "models" / "chat"
    write_checkpoint(folder / "checkpoint")
    (folder / "model.yaml").write_text(
        "name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\n"
        "serving: {generation: {gpu: {name: tensorrt-llm, checkpoint: /data/chat}}}\n"
    )
    built = build_repository(tmp_path, target="gpu")
    with serve(built.path, grpc_port=0, metrics_port=0) as endpoint:
        yield endpoint


def test_triton_loads_it_and_text_is_shown(server: Endpoint) -> None:
    """The configuration agrees with what the model sets, optional inputs may be left out, and replies stream."""
    command = ["call", "chat", "--address", server.grpc, "--stream", "--input", "text_input=a b"]
    done = tritonkit_here(*command, "--input", "streaming=true")
    assert (done.returncode, done.stdout) == (0, "a b /data/chat \n"), done.stderr
    assert "3 replies" in done.stderr
    assert "0 replies" in tritonkit_here(*command).stderr
