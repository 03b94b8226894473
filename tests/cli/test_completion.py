"""A shell completes commands, models, variants and the addresses of servers that run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritonkit.cli.completion import complete_variants


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a model of its own, and one that is only served."""
    for file in ("models/digits/model.yaml", "model_repository/digits_network/config.pbtxt", "models/notes.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    return tmp_path


def completed(line: str, cwd: Path) -> list[str]:
    """The words that bash offers for the last word of a line, which may be empty."""
    variables = {"_TRITONKIT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    command = [sys.executable, "-m", "tritonkit"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | variables)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tritonkit re", ["report", "reload", "release", "restore"]),
        ("tritonkit call dig", ["digits", "digits_network"]),
        ("tritonkit serve --model ", ["digits", "digits_network"]),
        ("tritonkit build d", ["digits", "digits_network"]),
        ("tritonkit tune digits --variants onnx-int8-d", ["onnx-int8-dynamic"]),
        ("tritonkit tune digits --variants onnx-int8-q", ["onnx-int8-qat", "onnx-int8-qdq"]),
        ("tritonkit call digits --ver", ["--version"]),
        ("tritonkit keys re", ["revoke"]),
    ],
)
def test_the_words_of_a_line(project: Path, line: str, words: list[str]) -> None:
    """From a folder below the project too."""
    assert completed(line, project / "models" / "digits") == words


@pytest.mark.parametrize(
    "command", ["build", "inspect", "call", "load", "report", "tune", "check-batching", "serve --model"]
)
def test_networks_of_a_pipeline(project: Path, command: str) -> None:
    """Before they are built, too; a model.yaml that cannot be read has none."""
    (project / "models" / "digits" / "model.yaml").write_text(
        "name: digits\npipeline:\n"
        "  - {name: one, network: {onnx: a.onnx}}\n"
        "  - {name: all, map: {over: [x], pipeline: [{name: two, network: {onnx: a.onnx}}]}}\n"
    )
    names = ["digits", "digits_all_item", "digits_all_item_two", "digits_network", "digits_one"]
    assert completed(f"tritonkit {command} d", project) == names
    assert completed(f"tritonkit {command} digits_o", project) == ["digits_one"]


def test_a_further_variant_follows_a_comma() -> None:
    """The variants that are there stay."""
    assert "onnx-fp32,openvino-int8" in complete_variants("onnx-fp32,openvino-i")


def test_an_address_of_a_server_that_runs(project: Path) -> None:
    """From the file of its run; that of a server that has ended is not offered."""
    for name, pid in (("1", os.getpid()), ("2", 999_999_999)):
        run = project / ".tritonkit" / "run" / name
        run.mkdir(parents=True)
        (run / "owner").write_text(str(pid))
        (run / "endpoint.json").write_text(json.dumps({"grpc": f"127.0.0.1:900{name}"}))
    assert completed("tritonkit call digits --address 127", project) == ["127.0.0.1:9001"]


def test_no_project_completes_nothing(tmp_path: Path) -> None:
    """Without an error."""
    assert completed("tritonkit call d", tmp_path) == []
