"""`tritonkit.testing.PythonModel` gives the answers and errors of a real Triton."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.repository.python_model.cases import EARLY, MODELS, config_of
from tests.server.models import ModelText, write_repository
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.errors import InferenceError, ServerStartError
from tritonkit.serve import Endpoint, serve
from tritonkit.testing import PythonModel, PythonRequest

X = np.array([[1, 2]], np.float32)
STREAMED = ("counts", "threads", "returns")
ASKED = [
    *(
        (name, PythonRequest({"x": X}))
        for name in MODELS
        if name not in ("texts", "flat", "sequences", "asks", *STREAMED)
    ),
    ("double", PythonRequest({"x": np.float32([[1, 2], [3, 4], [5, 6]])})),
    ("flat", PythonRequest({"x": X[0]})),
    ("asks", PythonRequest({"x": X}, request_id="seven", parameters={"k": 5})),
    ("texts", PythonRequest({"text": np.array([["ab"], ["é"], [""]], object)})),
    ("texts", PythonRequest({"text": np.array([[b"ab"]], object)}, outputs=["length"])),
    *(("counts", PythonRequest({"x": np.array(x, np.float32)})) for x in ([3, -1], [3, 1], [0, -1])),
    ("threads", PythonRequest({"x": X[0]})),
    ("returns", PythonRequest({"x": X[0]})),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Endpoint]:
    """A Triton with all of them."""
    repository = tmp_path_factory.mktemp("python_models") / "model_repository"
    codes = {**MODELS, "early": EARLY}
    write_repository(repository, {name: ModelText(config_of(name), code) for name, code in codes.items()})
    free = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
    with serve(repository, **free, root=project, finalize_timeout_s=0) as endpoint:
        yield endpoint


def opened(folder: Path, name: str) -> PythonModel:
    """A model in this process, with the models that it calls."""
    file = folder / name / "model.py"
    file.parent.mkdir()
    file.write_text(MODELS[name])
    called = {"double", "refuses", "counts"} if name.startswith("calls") else set()
    calls = {other: opened(folder, other) for other in called}
    return PythonModel(file, f'name: "{name}"\n{config_of(name)}', calls=calls)


def in_words(error: InferenceError) -> str:
    """The error's words, without Triton's mark of a request, folders, and the stack of calls."""
    words = error.found.split("\n\nAt:")[0].rpartition("] ")[2].strip()
    return re.sub(r"/\S*/1/", "", words)


def with_code(words: str) -> tuple[str, str]:
    """The code that the client puts before a server's words, as `TritonError` names it, and the words. Errors in
    streams have no code."""
    code, rest = re.fullmatch(r"(?s)(?:([A-Z_]+): )?(.*)", words).groups("")  # type: ignore[union-attr]
    return code.replace("INVALID_ARGUMENT", "INVALID_ARG"), rest


def served(endpoint: Endpoint, name: str, request: PythonRequest) -> tuple[list[Mapping[str, Any]], str]:
    """The responses of the real server, and the words of the error at their end."""
    responses: list[Mapping[str, Any]] = []
    with Client(endpoint.grpc, timeout_s=PATIENCE_S) as client:
        model = client.model(name)
        more: dict[str, Any] = {"parameters": dict(request.parameters)} if request.parameters else {}
        more |= {"request_id": request.request_id} if request.request_id else {}
        more |= {"outputs": list(request.outputs)} if request.outputs else {}
        try:
            if name in STREAMED:
                for reply in model.stream(inputs=dict(request.inputs), **more):
                    responses.append(reply.outputs)
            else:
                responses.append(model.predict(inputs=dict(request.inputs), **more).outputs)
        except InferenceError as error:
            return responses, in_words(error)
    return responses, ""


@pytest.mark.parametrize(("name", "request_"), ASKED, ids=[f"{n}-{name}" for n, (name, _) in enumerate(ASKED)])
def test_answers_and_errors_are_a_servers(server: Endpoint, tmp_path: Path, name: str, request_: PythonRequest) -> None:
    """Arrays with their dtypes, the number of responses, and the words of errors."""
    responses, words = served(server, name, request_)
    with opened(tmp_path, name) as model:
        [answer] = model.execute([request_])
    code, expected = with_code(words)
    assert (in_words(answer.error) if answer.error else "") == expected
    assert answer.code == code or (name in STREAMED and not code)
    assert len(answer.responses) == len(responses)
    for here, there in zip(answer.responses, responses, strict=True):
        assert here.keys() == there.keys()
        for output, array in there.items():
            assert here[output].dtype == array.dtype
            np.testing.assert_array_equal(here[output], array)


def test_names_that_triton_sets_later(server: Endpoint, tmp_path: Path) -> None:
    """A model that imports them at its top is loaded neither there nor here."""
    (tmp_path / "model.py").write_text(EARLY)
    with pytest.raises(ServerStartError) as caught:
        PythonModel(tmp_path / "model.py", f'name: "early"\n{config_of("early")}')
    assert caught.value.found.startswith("ImportError: cannot import name 'Tensor'")
    assert "ImportError: cannot import name 'Tensor'" in server.failed["early"]


def test_sequences_are_a_servers(server: Endpoint, tmp_path: Path) -> None:
    """The inputs that the batcher adds are those of a request's place in its sequence."""
    values = [np.float32([[n, -n]]) for n in range(1, 4)]
    with Client(server.grpc, timeout_s=PATIENCE_S) as client, client.model("sequences").sequence() as sequence:
        there = [sequence.predict(x=x, last=n == 2)["y"] for n, x in enumerate(values)]
    request = PythonRequest({}, sequence_id=7)
    with opened(tmp_path, "sequences") as model:
        here = [
            model.execute([replace(request, inputs={"x": x}, sequence_start=n == 0, sequence_end=n == 2)])[0]["y"]
            for n, x in enumerate(values)
        ]
    np.testing.assert_array_equal(here, there)
