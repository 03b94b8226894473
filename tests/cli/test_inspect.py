"""A model folder from a stranger: what may be done with it without running any of its Python."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.repository.optimize.small_specs import RELU, onnx_file

STEP = "description: none\ninputs: {y: {dtype: FP32, shape: [4]}}\noutputs: {z: {dtype: FP32, shape: [4]}}\n"


class _Bomb:
    """Runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def poison(root: Path) -> str:
    """Python that leaves a file behind when it is imported."""
    return f"from pathlib import Path\nPath({str(root)!r}, 'ran-' + __name__).touch()\n"


def ran(root: Path) -> list[str]:
    """The files of the folder that have run."""
    return sorted(file.name for file in root.glob("ran-*"))


@pytest.fixture
def hostile(root: Path) -> Path:
    """A project whose models all leave a file behind when anything of them runs."""
    code = poison(root)
    for name, spec in {
        "fromonnx": "network: {onnx: m.onnx}\nquality: {samples: data:samples, metric: data:metric}\n"
        "pipeline: [network, {step: last, inputs: {y: y}}]\n",
        "fromtorch": "network:\n  torch: network:build\n  weights: w.pt\n"
        "  inputs: {x: {dtype: FP32, shape: [4]}}\n  outputs: {y: {dtype: FP32, shape: [4]}}\n"
        "optimize: {calibration: data:samples, student: student:build}\n",
        "frompython": "network:\n  python: server.py\n  files: [w.pt]\n"
        "  inputs: {x: {dtype: FP32, shape: [4]}}\n  outputs: {y: {dtype: FP32, shape: [4]}}\n",
    }.items():
        folder = root / "models" / name
        (folder / "steps" / "last").mkdir(parents=True)
        (folder / "model.yaml").write_text(f"name: {name}\n{spec}")
        (folder / "m.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
        (folder / "w.pt").write_bytes(pickle.dumps(_Bomb(f"touch {root}/ran-pickle")))
        (folder / "steps" / "last" / "step.yaml").write_text(STEP)
        for file in ("network", "student", "server", "json", "__init__", "steps/last/model"):
            (folder / f"{file}.py").write_text(code)
        (folder / "helper.py").write_text(code)
        (folder / "data.py").write_text(
            f"{code}import numpy as np\nimport helper\n"
            "def samples():\n    return [{'x': np.ones((2, 4), np.float32)}]\n"
            "def metric(outputs, reference):\n    return 1.0\n"
        )
    return root


@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["inspect", "--json"],
        ["build", "--dry-run"],
        ["build", "--dry-run", "--variants", "all"],
        ["build", "--dry-run", "--json"],
    ],
    ids=" ".join,
)
def test_looking_runs_nothing(hostile: Path, words: list[str]) -> None:
    """Neither Python, nor a pickle, nor a step of the folder has run, and nothing was written."""
    before = sorted(hostile.rglob("*"))
    done = tritonkit(*words, "--root", str(hostile))
    assert done.returncode == 0, done.stderr
    assert ran(hostile) == []
    assert sorted(hostile.rglob("*")) == before


def test_inspect_says_what_would_run_and_be_served(hostile: Path) -> None:
    """Each file with its moment: hooks, what they import, steps in the server, and what nothing names."""
    done = tritonkit("inspect", "fromonnx", "fromtorch", "--json", "--root", str(hostile))
    onnx, torch = json.loads(done.stdout)["models"]
    uses = {(use["when"], use["file"]) for use in onnx["python"]}
    assert ("build", "data.py") in uses
    assert ("build", "helper.py") in uses
    assert ("server", "steps/last/model.py") in uses
    assert ("if imported", "network.py") in uses
    assert {m["name"]: m["backend"] for m in onnx["models"]} == {
        "fromonnx_network": "onnxruntime",
        "fromonnx_last": "python",
        "fromonnx": "ensemble",
    }
    assert onnx["onnx"]["inputs"] == ["x FLOAT [batch,4]"]
    assert onnx["onnx"]["custom_operators"] == []
    remarks = {file["path"]: file["remark"] for file in torch["files"]}
    assert "pickle" in remarks["w.pt"]
    assert "hides Python's own json" in remarks["json.py"]
    assert ("some variants", "student.py") in {(u["when"], u["file"]) for u in torch["python"]}
    assert torch["models"][0]["inputs"] == ["x FP32 [4]"]


def test_inspect_shows_tables(hostile: Path) -> None:
    """For a person: files, Python, the ONNX file, what would be served."""
    done = tritonkit("inspect", "fromonnx", "--root", str(hostile))
    for heading in ("Files", "Python that would run", "data.py", "ONNX file", "Would be served"):
        assert heading in done.stdout, heading


def test_inspect_takes_a_folder_anywhere(hostile: Path, tmp_path: Path) -> None:
    """A folder is looked at where it was downloaded, before it is put into a project."""
    (tmp_path / "downloads").mkdir()
    elsewhere = (hostile / "models" / "frompython").rename(tmp_path / "downloads" / "frompython")
    done = tritonkit("inspect", str(elsewhere), "--root", str(hostile))
    assert done.returncode == 0, done.stderr
    assert "server.py" in done.stdout
    assert ran(hostile) == []


def test_a_build_names_the_python_before_it_runs(hostile: Path) -> None:
    """One line on standard error, first of all; a second build, which runs nothing, has none."""
    done = tritonkit("build", "fromonnx", "--root", str(hostile))
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first == f"fromonnx: runs the Python of {hostile}/models/fromonnx: data.py, steps/last/model.py, helper.py"
    # The step runs where there is a server to try it.
    assert [name for name in ran(hostile) if name != "ran-1.model"] == ["ran-data", "ran-helper"]
    again = tritonkit("build", "fromonnx", "--root", str(hostile))
    assert "runs the Python" not in again.stderr


def test_a_dry_run_names_the_python_that_would_run(hostile: Path) -> None:
    """On standard error, and under would_run for a program."""
    done = tritonkit("build", "fromonnx", "--dry-run", "--root", str(hostile))
    files = ["data.py", "steps/last/model.py", "helper.py"]
    assert f"would run: fromonnx: {', '.join(files)}" in done.stderr
    facts = tritonkit("build", "fromonnx", "--dry-run", "--json", "--root", str(hostile)).stdout
    assert json.loads(facts)["would_run"] == {"fromonnx": files}


def test_operators_of_other_domains_and_weights_elsewhere_are_said(root: Path) -> None:
    """A file that a build would refuse is described all the same, with what is wrong as a note."""
    folder = root / "models" / "net"
    folder.mkdir()
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["batch", 4])
    inner = helper.make_graph(
        [helper.make_node("Evil", [], ["b"], domain="evil.example")], "then", [], [helper.make_value_info("b", kind)]
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        "g",
        [helper.make_value_info("x", kind)],
        [helper.make_value_info("y", kind)],
    )
    weight = graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../../etc/passwd")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("evil.example", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    (folder / "model.yaml").write_text("name: net\nnetwork: {onnx: m.onnx}\n")
    (facts,) = json.loads(tritonkit("inspect", "net", "--json", "--root", str(root)).stdout)["models"]
    assert facts["onnx"]["custom_operators"] == ["evil.example.Evil"]
    assert facts["onnx"]["external_files"] == ["../../../etc/passwd"]
    (folder / "m.onnx").write_bytes(b"no onnx")
    done = tritonkit("inspect", "net", "--root", str(root))
    assert done.returncode == 0
    assert "is not an ONNX file" in done.stderr


def test_python_too_deep_for_the_parser_is_looked_at(root: Path) -> None:
    """A file that no parser takes is listed, and is no traceback in a dry run either."""
    folder = root / "models" / "net"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    (folder / "model.yaml").write_text("name: net\nnetwork: {onnx: m.onnx}\nquality: {samples: data:samples}\n")
    for text in ("-" * 100_000 + "1", "a" + ".a" * 100_000, "\0"):
        (folder / "data.py").write_text(text)
        for words in (["inspect"], ["build", "--dry-run"]):
            done = tritonkit(*words, "--root", str(root))
            assert done.returncode == 0, done.stderr
            assert "data.py" in done.stdout + done.stderr


def test_a_name_nobody_knows_is_exit_code_2(hostile: Path) -> None:
    """A name and a path give the errors of the other commands."""
    assert "did you mean" not in failed(tritonkit("inspect", "nonet", "--root", str(hostile)), 2)
    assert "no such file" in failed(tritonkit("inspect", "./nonet", "--root", str(hostile)), 2)
