"""A build loads what it is about to publish once, as a server will."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tests.repository.optimize.test_outputs import CASES
from tritonkit.errors import BuildError
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish import trial
from tritonkit.repository.publish.publish import Rendered

TEXT = "name: net\nnetwork: {onnx: m.onnx}\n"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The inputs of each request that builds tried."""
    requests: list[dict[str, Any]] = []
    answer = trial._answer

    def noting(config: Any, network: Any, request: Any, sample: Batch) -> None:
        requests.append(dict(sample))
        answer(config, network, request, sample)

    monkeypatch.setattr(trial, "_answer", noting)
    return requests


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", ["onnx-fp32", "openvino-fp32"])
def test_what_a_build_publishes_loads(
    write_model: WriteModel, root: Path, tried: list[Any], case: str, variant: str
) -> None:
    """Whatever shapes a file names, the backends take its configuration, and give what it says."""
    content, serving, _ = CASES[case]
    size = "0" if serving else "8"
    write_model(f"{TEXT}serving: {{max_batch_size: {size}, variant: {variant}}}\n", m__onnx=content)
    build_repository(root, ("net",), out=root / "out")
    assert len(tried) == 1


def test_it_is_tried_once(
    write_model: WriteModel, root: Path, tried: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unchanged build loads nothing; another configuration is loaded, another file answers a request too."""
    loaded: list[str] = []
    stand_in = trial._stand_in

    def noting(backend: str) -> tuple[Any, Any]:
        loaded.append(backend)
        return stand_in(backend)

    monkeypatch.setattr(trial, "_stand_in", noting)
    write_model(TEXT, m__onnx=onnx_file(RELU, ["batch", 4]))
    counts = []
    for text in (TEXT, TEXT, f"{TEXT}serving: {{max_batch_size: 3}}\n"):
        write_model(text)
        build_repository(root, ("net",), out=root / "out")
        counts.append((len(loaded), len(tried)))
    write_model(TEXT, m__onnx=onnx_file([helper.make_node("Abs", ["x"], ["y"])], ["batch", 4]))
    build_repository(root, ("net",), out=root / "out")
    counts.append((len(loaded), len(tried)))
    assert counts == [(1, 1), (1, 1), (2, 1), (3, 2)]
    assert {array.shape for inputs in tried for array in inputs.values()} == {(1, 4)}


def test_a_cached_network_runs_no_python_of_its_folder(write_model: WriteModel, root: Path) -> None:
    """A dry run says which Python a build would run: a change of the configuration runs none."""
    data = "import numpy as np\ndef given(): return {'x': np.ones((2, 4), np.float32)}\n"
    text = f"{TEXT}quality: {{samples: data:given}}\n"
    write_model(text, m__onnx=onnx_file(RELU, ["batch", 4]), data__py=data)
    build_repository(root, ("net",), out=root / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritonkit.repository.export.samples.load_hook", None)
        write_model(f"{text}serving: {{max_batch_size: 3}}\n")
        build_repository(root, ("net",), out=root / "out")
    assert "max_batch_size: 3" in (root / "out/net/config.pbtxt").read_text()


def test_a_dry_run_tries_nothing(write_model: WriteModel, root: Path, tried: list[Any]) -> None:
    """Nothing is loaded, and no sample is made."""
    write_model(TEXT, m__onnx=onnx_file(RELU, ["batch", 4]))
    build_repository(root, ("net",), out=root / "out")
    build_repository(root, ("net",), out=root / "other", dry_run=True)
    assert len(tried) == 1


def test_texts_are_sent_as_bytes(write_model: WriteModel, root: Path, tried: list[Any]) -> None:
    """A network of texts gets what a request carries, and its samples are the ones of the spec."""
    ends = [helper.make_tensor_value_info(name, TensorProto.STRING, ["N", 1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    data = "import numpy as np\ndef given(): return {'x': np.array([['ü'], ['b']], dtype=object)}\n"
    write_model(f"{TEXT}quality: {{samples: data:given}}\n", m__onnx=content, data__py=data)
    build_repository(root, ("net",), out=root / "out")
    assert tried[0]["x"].tolist() == [["ü"]]


def test_the_user_s_samples_are_what_is_tried(write_model: WriteModel, root: Path, tried: list[Any]) -> None:
    """The samples are tried, not zeros, which many networks refuse; a scalar goes as callers send it."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "s"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    opsets = [helper.make_opsetid("", 18)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    data = "import numpy as np\ndef given(): return {'x': np.ones(7, np.float32), 's': np.array([3], np.float32)}\n"
    text = f"{TEXT}quality: {{samples: data:given}}\nserving: {{max_batch_size: 0}}\n"
    write_model(text, m__onnx=content, data__py=data)
    build_repository(root, ("net",), out=root / "out")
    assert tried[0]["x"].shape == (7,)
    assert float(tried[0]["s"]) == 3


REFUSED: Mapping[str, tuple[str, str]] = {
    "a switch": (
        "serving: {parameters: {enable_mem_arena: maybe}}\n",
        "parameter enable_mem_arena: found 'maybe', wanted 0 or 1",
    ),
    "a mode": ("serving: {parameters: {execution_mode: '7'}}\n", "execution_mode: found 7, wanted 0 or 1"),
    "openvino's": ("serving: {variant: openvino-fp32, parameters: {NUM_STREAMS: many}}\n", "NUM_STREAMS"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_server_would_refuse_is_refused_here(write_model: WriteModel, root: Path, case: str) -> None:
    """The refusal has the server's own words, and the published version stays."""
    text, message = REFUSED[case]
    write_model(TEXT, m__onnx=onnx_file(RELU, ["batch", 4]))
    out = build_repository(root, ("net",), out=root / "out").path
    before = (out / "net" / "config.pbtxt").read_text()
    write_model(TEXT + text)
    with pytest.raises(BuildError) as caught:
        build_repository(root, ("net",), out=out)
    assert message in caught.value.found
    assert (out / "net" / "config.pbtxt").read_text() == before


def test_an_answer_of_another_shape_is_refused(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration promises shapes; a client goes by them."""
    write_model(TEXT, m__onnx=onnx_file(RELU, ["batch", 4]))
    config = trial._config

    def wrong(rendered: Rendered) -> dict[str, Any]:
        changed = config(rendered)
        changed["output"][0]["dims"] = ["5"]
        return changed

    monkeypatch.setattr(trial, "_config", wrong)
    with pytest.raises(BuildError, match=r"config.pbtxt says \[-1, 5\]"):
        build_repository(root, ("net",), out=root / "out")


def test_modules_of_a_person_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in's modules have plain names, which a model's Python may have taken."""
    own: Any = object()
    monkeypatch.setitem(sys.modules, "backend_config", own)
    trial._stand_in.cache_clear()
    path = list(sys.path)
    opening, requests = trial._stand_in("onnxruntime")
    assert sys.modules["backend_config"] is own
    assert sys.path == path
    assert opening.Network is requests.Network
    assert "onnxruntime_network" not in sys.modules
    network = requests.Request({"x": np.ones(1)}, ["y"])
    assert network.outputs == ["y"]
