"""A function that is not whole does not start, and a model that fails is the function's error: never a stack."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.runtime_api import function, http_event
from tests.operate.deploy.serverless.conftest import sealed

NETWORK = Path("models/digits_network/1/model.onnx")
TOP_K = Path("models/digits_top_k/1/model.py")
FAILING = """
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("a secret of the model")
"""


def start_error(folder: Path) -> str:
    """The error that the function posts instead of polling for an event."""
    with function(folder) as running:
        error = running.api.init_error
        assert error is not None, "it has started"
        assert running.process.wait(30) == 1
    assert error["errorType"] == "Function.StartError"
    assert error["stackTrace"] == []
    return str(error["errorMessage"])


def damaged(folder: Path) -> None:
    """One bit of the weights is another."""
    content = bytearray((folder / NETWORK).read_bytes())
    content[5000] ^= 1
    (folder / NETWORK).write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damaged, "model.onnx: sha256"),
        (lambda folder: (folder / NETWORK).unlink(), "model.onnx: it is missing"),
        (lambda folder: (folder / "extra.py").write_text(""), "extra.py: it was not published"),
        (lambda folder: (folder / "manifest.json").unlink(), "there is none that can be read"),
        (lambda folder: (folder / TOP_K).write_text(FAILING), "model.py: "),
    ],
)
def test_a_file_that_is_not_as_packaged_stops_the_start(copied: Path, spoil: Callable[[Path], Any], words: str) -> None:
    """Each file is compared with the manifest before a model's Python runs."""
    spoil(copied)
    message = start_error(copied)
    assert "1 files are not as they were packaged" in message
    assert words in message


def test_a_model_that_cannot_be_opened_says_why(copied: Path) -> None:
    """In the model's own words."""
    (copied / NETWORK).write_bytes(b"no ONNX")
    assert "model 'digits_network': ONNX Runtime cannot load" in start_error(sealed(copied))


def test_a_model_that_fails_is_the_function_s_error(copied: Path, example: Any) -> None:
    """Lambda counts it and may try again; the reason is in the log alone. Over HTTP it is a 500."""
    (copied / TOP_K).write_text(FAILING)
    with function(sealed(copied)) as running:
        outcome = running.invoke(example)
        assert outcome.failed
        assert outcome.body["errorType"] == "Function.Failed"
        assert outcome.body["stackTrace"] == []
        assert "model 'digits_top_k' failed" in outcome.body["errorMessage"]
        path = "/v2/models/digits/infer"
        answer = running.invoke(http_event(path, json.dumps(example).encode())).body
        assert answer["statusCode"] == 500
        assert "secret" not in json.dumps([outcome.body, answer])
        assert "a secret of the model" in running.stop()


def test_threads_are_the_memory_s(digits_folder: Path) -> None:
    """A vCPU for each 1,769 MiB, rounded, and never more than the machine has."""
    code = (
        "import os; from tritonkit_lambda.start import vcpus; os.sched_getaffinity = lambda pid: range(6)\n"
        "for memory in ('128', '1769', '3008', '10240', ''):\n"
        "    os.environ['AWS_LAMBDA_FUNCTION_MEMORY_SIZE'] = memory\n"
        "    print(vcpus())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=digits_folder / "function", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1", "2", "6", "6"]
