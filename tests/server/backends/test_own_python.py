"""Steps and networks of a user's own Python, which a build tries in batches in a real Triton."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tritonkit.errors import BuildError
from tritonkit.perf.diagnose import prove_own_python
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.pipeline import Repository, build_repository, check_repository
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.render.own_python import Verdicts

STEP = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(r, "{given}").as_numpy() for r in requests]
        x = np.concatenate(given)
        y = np.asarray({work}).astype(np.float32)
        parts = np.split(y, np.cumsum([len(g) for g in given])[:-1])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("{made}", part)]) for part in parts]
"""
CONTRACT = """description: a step of a user's own
inputs: {{{given}: {{dtype: {dtype}, shape: [{size}]}}}}
outputs: {{{made}: {{dtype: FP32, shape: [2]}}}}
"""
DATA = """import numpy as np

def samples():
    return [{"x": np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)}]
"""
LENGTHS = "[[len(t), t[0]] for t in x.ravel()]"


def doubling() -> bytes:
    """y = x + x."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def pipeline(root: Path, before: str, after: str, serving: str = "{}") -> None:
    """A text's length and first letter, doubled by an ONNX network, and `after` of that."""
    folder = root / "models" / "net"
    steps = {"measure": ("text", "BYTES", 1, "x", before), "finish": ("y", "FP32", 2, "z", after)}
    for name, (given, dtype, size, made, work) in steps.items():
        (folder / "steps" / name).mkdir(parents=True, exist_ok=True)
        contract = CONTRACT.format(given=given, dtype=dtype, size=size, made=made)
        (folder / "steps" / name / "step.yaml").write_text(contract)
        code = STEP.format(given=given, work=work, made=made)
        (folder / "steps" / name / "model.py").write_text(code)
    (folder / "net.onnx").write_bytes(doubling())
    (folder / "data.py").write_text(DATA)
    (folder / "model.yaml").write_text(
        "name: net\nnetwork: {onnx: net.onnx}\nquality: {samples: data:samples}\n"
        f"pipeline: [{{step: measure}}, network, {{step: finish, serving: {serving}}}]\n"
        "example: {text: {text: a, more: [bcd, efghi, xy]}}\n"
    )


class Counting:
    """The prover of a build, which counts how often it was asked, and for what."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def __call__(
        self, root: Path, models: Sequence[Rendered], names: Sequence[str], given: Sequence[Batch]
    ) -> Verdicts:
        """Prove it, with the arguments of `prove_own_python`."""
        self.asked.append(names)
        return prove_own_python(root, models, names, given)


def sizes(built: Repository) -> Mapping[str, str]:
    """Model -> its max_batch_size as its configuration says it."""
    limits = {}
    for file in sorted(built.path.glob("*/config.pbtxt")):
        [line] = [line for line in file.read_text().splitlines() if "max_batch_size" in line]
        limits[file.parent.name] = line.split()[1]
    return limits


def is_proven(built: Repository, model: str) -> bool:
    """Whether clients are told so, and the manifest knows what was tried."""
    text = (built.path / model / "config.pbtxt").read_text()
    manifest = max((built.path / model).glob("[0-9]*/manifest.json"))
    verdict = json.loads(manifest.read_text()).get("independent_items") or {}
    is_told = 'key: "tritonkit.independent_items" value { string_value: "proven" }' in text
    assert is_told == (verdict.get("state") == "proven")
    return is_told


def test_steps_in_front_of_the_network_and_behind_it(tmp_path: Path) -> None:
    """Both are tried on the examples, one also on what the network gives for the samples; what was seen is kept until
    something changes."""
    prover = Counting()
    build: Callable[[], Repository] = lambda: build_repository(tmp_path, cores=2, prover=prover)  # noqa: E731
    pipeline(tmp_path, LENGTHS, "x / 2")
    built = build()
    assert sizes(built) == {"net": "64", "net_finish": "64", "net_measure": "64", "net_network": "64"}
    assert is_proven(built, "net_finish")
    assert is_proven(built, "net_measure")
    assert not any("not proven" in note for note in built.notes)
    assert [change.action for change in build().changes] == ["unchanged"] * 4
    assert prover.asked == [["net_measure", "net_finish"]]
    pipeline(tmp_path, LENGTHS, "x - x.mean(0)")
    built = build()
    assert sizes(built) == {"net": "1", "net_finish": "1", "net_measure": "64", "net_network": "64"}
    assert not is_proven(built, "net_finish")
    [note] = [note for note in built.notes if "net_finish: max_batch_size is 1" in note]
    assert "answers differ, most in z" in note
    assert prover.asked[1:] == [["net_measure", "net_finish"]]
    assert check_repository(tmp_path, cores=2) == {}
    pipeline(tmp_path, LENGTHS, "x - x.mean(0)", "{max_batch_size: 8}")
    with pytest.raises(BuildError, match=r"pipeline\.2\.serving\.max_batch_size: batching is on"):
        build()


def test_steps_of_a_pipeline_whose_network_is_another_spec(tmp_path: Path) -> None:
    """The step before it is tried on the examples. What reaches the step behind it is not known: its batches are not
    proven, and the build says so."""
    pipeline(tmp_path, LENGTHS, "x / 2")
    (tmp_path / "models" / "net" / "model.yaml").write_text(
        "name: net\npipeline: [{step: measure}, {name: double, network: {onnx: net.onnx}}, {step: finish}]\n"
        "example: {text: {text: a, more: [bcd, efghi, xy]}}\n"
    )
    built = build_repository(tmp_path, cores=2, prover=Counting())
    assert sizes(built) == {"net": "64", "net_double": "64", "net_finish": "64", "net_measure": "64"}
    assert is_proven(built, "net_measure")
    assert not is_proven(built, "net_finish")
    assert any("net_finish: not proven" in note for note in built.notes)


def test_a_build_for_a_gpu_tries_steps_on_the_cpu(tmp_path: Path) -> None:
    """They run there anyway, and the same files need no second trial for the other target."""
    prover = Counting()
    pipeline(tmp_path, LENGTHS, "x / 2")
    built = build_repository(tmp_path, target="gpu", cores=2, prover=prover)
    assert is_proven(built, "net_finish")
    assert is_proven(built, "net_measure")
    assert is_proven(build_repository(tmp_path, cores=2, prover=prover), "net_finish")
    assert prover.asked == [["net_measure", "net_finish"]]


def test_requests_that_a_network_works_on_together(tmp_path: Path) -> None:
    """Its answers are right for every request alone, however many items it has; not among other requests."""
    folder = tmp_path / "models" / "net"
    folder.mkdir(parents=True)
    (folder / "data.py").write_text(DATA)
    (folder / "model.yaml").write_text(
        "name: net\nnetwork:\n  python: net.py\n  inputs: {x: {dtype: FP32, shape: [2]}}\n"
        "  outputs: {y: {dtype: FP32, shape: [2]}}\nquality: {samples: data:samples}\n"
        "serving: {dynamic_batching: {max_queue_delay: 20ms}}\n"
    )
    code = STEP.format(given="x", made="y", work="x + (len(requests) > 1)")
    (folder / "net.py").write_text(code)
    with pytest.raises(BuildError, match=r"256 requests of 16 callers, \d+ of 256 answers differ"):
        build_repository(tmp_path, cores=2, prover=prove_own_python)
    (folder / "net.py").write_text(code.replace("len(requests) > 1", "1"))
    assert is_proven(build_repository(tmp_path, cores=2, prover=prove_own_python), "net")


def test_what_cannot_be_tried_is_said(tmp_path: Path) -> None:
    """A step that fails on every item, and a build without a server."""
    pipeline(tmp_path, LENGTHS, "[][0]")
    built = build_repository(tmp_path, cores=2)
    notes = [note for note in built.notes if "not proven" in note]
    assert [note.partition(":")[0] for note in notes] == ["net_measure", "net_finish"]
    assert all("only where it knows several items" in note for note in notes)
    built = build_repository(tmp_path, cores=2, prover=prove_own_python)
    [note] = [note for note in built.notes if "not proven" in note]
    assert note.startswith("net_finish: not proven: it does not answer an item alone")
