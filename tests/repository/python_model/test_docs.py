"""The examples of docs/testing.md and docs/environments.md."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import RenderError
from tritonkit.operate.deploy.serverless import bundle

STEP = """
description: Counts words
inputs: {text: {dtype: BYTES, shape: [1]}}
outputs: {number: {dtype: INT32, shape: [1]}}
"""
COUNT = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
        counts = np.array([[len(text.split())] for text in texts.ravel()], np.int32)
        if not counts.all():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no word", pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("number", counts)])
"""
NETWORK = (
    "network: {python: m.py, inputs: {number: {dtype: INT32, shape: [1]}}, outputs: {y: {dtype: INT32, shape: [1]}}}"
)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page in a language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    return found


def with_step(root: Path, contract: str) -> None:
    """A step of the model `words`."""
    step = root / "models" / "words" / "steps" / "count"
    step.mkdir(parents=True)
    (step / "step.yaml").write_text(contract)
    (step / "model.py").write_text(COUNT)


def test_the_test_of_a_step(project: Path, root: Path, write_model: WriteModel) -> None:
    """It runs as it stands in the page."""
    with_step(root, STEP)
    write_model(f"name: words\n{NETWORK}\npipeline: [{{step: count}}, network]\n", "words", m__py="")
    program = blocks(project / "docs" / "testing.md", "python")[-1]
    with contextlib.chdir(root):
        exec(compile(program, "testing.md", "exec"), {})  # noqa: S102 - the page's own


def test_the_requirements_of_a_model(project: Path, write_model: WriteModel) -> None:
    """The page's model can be read."""
    [text, *_] = blocks(project / "docs" / "environments.md", "yaml")
    spec = write_model(text, "prices", model__py="")
    assert spec.requirements["prices"].lines == ("xgboost==2.1.4", "scipy")


def test_a_function_of_lambda_has_one_python(root: Path, write_model: WriteModel) -> None:
    """A step with requirements of its own is refused, and the message names its place."""
    with_step(root, STEP + "python: {requirements: [apples]}\n")
    write_model(f"name: words\n{NETWORK}\npipeline: [{{step: count}}, network]\n", "words", m__py="")
    with pytest.raises(RenderError, match="requirements of its own") as caught:
        bundle(root, "words")
    assert caught.value.where == f"{root / 'models' / 'words' / 'steps' / 'count' / 'step.yaml'} python"
