"""`tritonkit new`: the folders it writes build."""

from __future__ import annotations

import io
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.repository.export.graphs import FLOAT, INT64, STRING, node, onnx_bytes
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import BuildError, SpecError, UsageError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.modelspec import load
from tritonkit.repository.modelspec.contents import build_python
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.scaffold import new_from_onnx, new_from_torch, parse_input


def test_an_onnx_folder_builds(root: Path, tmp_path: Path) -> None:
    """The file is copied, and the spec that names it builds as it is."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    spec = load(new_from_onnx(root, "relu", file), root)
    cache = BuildCache(root / "cache")
    assert build(plan(spec, cache), cache).signature.batched


def test_an_onnx_file_without_batch_axis_gets_max_batch_size_0(root: Path, tmp_path: Path) -> None:
    """A fixed first axis is told from the file."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, [2, 4], [2, 4]))
    assert load(new_from_onnx(root, "relu", file), root).model.serving.max_batch_size == 0


@pytest.mark.slow
def test_a_torch_folder_from_a_file_here_builds(root: Path, tmp_path: Path) -> None:
    """The Python file is copied, and outputs are learned by running the network."""
    (tmp_path / "mynet.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x, ids):\n        return x.mean(dim=1), ids * 2\n"
        "def build():\n    return Net()\n"
    )
    inputs = ["x=FP32:length(2-32),3", "ids=INT64:length(2-32)"]
    spec = load(new_from_torch(root, "mynet", "mynet:build", inputs, None, tmp_path), root)
    outputs = spec.model.network.outputs
    assert outputs["output_0"].shape == (3,)
    assert outputs["output_1"].dtype == "INT64"
    assert outputs["output_1"].shape == ("length",)
    cache = BuildCache(root / "cache")
    assert build(plan(spec, cache), cache).signature.outputs[1].shape == (-1,)


@pytest.mark.slow
def test_names_inside_the_network_may_be_those_of_its_outputs(root: Path, tmp_path: Path) -> None:
    """The exporter names inner tensors after parameters and operators, such as `scale` and `embedding`."""
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.ones(4) * 2)\n        self.table = torch.nn.Embedding(5, 4)\n"
        "    def forward(self, mul):\n        rows = self.table(mul)\n"
        "        return {'scale': rows * self.scale, 'embedding': rows * self.scale + 1}\n"
        "def build():\n    return Net()\n"
    )
    spec = load(new_from_torch(root, "net", "net:build", ["mul=INT64:3"], None, tmp_path), root)
    cache = BuildCache(root / "cache")
    signature = build(plan(spec, cache), cache).signature
    assert [tensor.name for tensor in signature.inputs] == ["mul"]
    assert [tensor.name for tensor in signature.outputs] == ["scale", "embedding"]


def test_a_torch_folder_from_an_installed_module_builds(root: Path, tmp_path: Path) -> None:
    """A factory in a package is imported, not copied."""
    spec = load(new_from_torch(root, "ident", "torch.nn:Identity", ["x=FP32:4"], None, tmp_path), root)
    assert "from torch.nn import Identity" in (spec.folder / "network.py").read_text()


def test_a_taken_name_is_refused(root: Path, tmp_path: Path) -> None:
    """Nothing is overwritten."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    new_from_onnx(root, "relu", file)
    with pytest.raises(UsageError, match="there already"):
        new_from_onnx(root, "relu", file)


def test_a_broken_file_leaves_no_folder(root: Path, tmp_path: Path) -> None:
    """A file that is not ONNX is refused before anything is written."""
    file = tmp_path / "broken.onnx"
    file.write_bytes(b"not onnx")
    with pytest.raises(BuildError, match="is not an ONNX file"):
        new_from_onnx(root, "broken", file)
    assert not list((root / "models").iterdir())


@pytest.mark.parametrize("text", ["x", "x=FLOAT:3", "x=FP32:3,oops", "=FP32:3"])
def test_an_input_that_cannot_be_read_shows_an_example(text: str) -> None:
    """The option says how it is written."""
    with pytest.raises(UsageError, match=r"wanted: (NAME=DTYPE:SHAPE|a number)"):
        parse_input(text)


LINEAR = "import torch\ndef build(): return torch.nn.Linear(4, 2)\n"
BY_SIZE = (
    "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x if x.shape[1] < 4 else (x, x)\ndef build(): return Net()\n"
)


@pytest.mark.parametrize(
    ("factory", "inputs", "code", "message"),
    [
        ("my-net:build", ["x=FP32:4"], LINEAR, "cannot be imported"),
        ("net:build", ["x=FP32:a(5-2)"], LINEAR, "min below max"),
        ("net:build", ["x=FP32:0"], LINEAR, "at least 1"),
        ("net:build", ["x=FP32:batch(2-9)"], LINEAR, "not `batch`"),
        ("net:build", ["x=FP32:4", "x=FP32:5"], LINEAR, "each input once"),
        ("net:build", ["x=FP32:a(2-9)"], BY_SIZE, "depends on the sizes"),
    ],
)
def test_what_cannot_become_a_spec_names_the_option(
    root: Path, tmp_path: Path, factory: str, inputs: list[str], code: str, message: str
) -> None:
    """Each mistake ends in an error about the command line, and leaves no folder."""
    (tmp_path / f"{factory.split(':')[0]}.py").write_text(code)
    with pytest.raises((UsageError, BuildError)) as caught:
        new_from_torch(root, "net", factory, inputs, None, tmp_path)
    assert message in str(caught.value)
    assert caught.value.where.startswith("--")
    assert not list((root / "models").iterdir())


def test_code_is_copied_byte_for_byte(root: Path, tmp_path: Path) -> None:
    """A Python file may declare another encoding than UTF-8."""
    code = b"# -*- coding: latin-1 -*-\n# \xe9\n" + LINEAR.encode()
    (tmp_path / "net.py").write_bytes(code)
    folder = new_from_torch(root, "net", "net:build", ["x=FP32:4"], None, tmp_path)
    assert (folder / "net.py").read_bytes() == code


def test_a_models_folder_that_cannot_be_written_is_told(root: Path, tmp_path: Path) -> None:
    """No traceback where models is a file."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    (root / "models").rmdir()
    (root / "models").touch()
    with pytest.raises(SpecError, match="cannot be written"):
        new_from_onnx(root, "relu", file)


def test_an_empty_folder_becomes_a_project(tmp_path: Path) -> None:
    """models/ is made, and the shipped steps are there without python_backends/."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    folder = new_from_onnx(tmp_path, "relu", file)
    assert folder == tmp_path / "models" / "relu"
    assert (folder / "model.yaml").read_text().startswith("name: relu")
    assert load(folder, tmp_path).name == "relu"


def test_what_the_file_does_not_say_stands_there_as_comments(root: Path, tmp_path: Path) -> None:
    """free_axes, inputs, samples and an example, with the file's own names: each is valid once the # is gone."""
    nodes = [node("Add", ["my image", "b"], ["y"]), node("Identity", ["text"], ["z"])]
    text, image = ("text", STRING, ["N", 1]), ("my image", FLOAT, ["N", 3, "H", None])
    outputs = [("y", *image[1:]), ("z", *text[1:])]
    file = tmp_path / "net.onnx"
    file.write_bytes(onnx_bytes(nodes, [image, ("b", FLOAT, ["N", 3, 8, 8]), text], outputs))
    folder = new_from_onnx(root, "net", file)
    spec_file = folder / "model.yaml"
    named, _, fixed = spec_file.read_text().partition("  # Or fix the sizes:\n")
    fixed, _, end = fixed.partition("# Real input")
    assert '"my image": float32 [items, 3, H, my_image_2], "b": float32 [items, 3, 8, 8]' in end
    (folder / "data.py").write_text("def samples(): ...\n")
    for uncommented in (named, named.partition("  #")[0] + fixed):
        section = re.sub(r"^(  )?# (?=(  )*[\w\" ]+:)", r"\1", uncommented + "# " + end, flags=re.M)
        spec_file.write_text(section)
        model = load(folder, root).model
        shape = model.network.inputs["my image"].shape
        assert shape == ((3, 224, 224) if uncommented != named else (3, "H", "my_image_2"))
        assert set(model.network.free_axes) == (set() if uncommented != named else {"H", "my_image_2"})
        assert model.quality.samples == "data:samples"
        assert model.example["text"].text == "one real text"


def test_a_row_of_tokens_is_described_by_its_length(root: Path, tmp_path: Path) -> None:
    """Multiples of 32 are for images; of an axis that both have, the tokens say what it is."""
    nodes = [node("Gather", ["table", "ids"], ["rows"]), node("Add", ["rows", "more"], ["y"])]
    more = ("more", FLOAT, ["N", "length", 8])
    file = tmp_path / "net.onnx"
    inputs = [("ids", INT64, ["N", "length"]), more]
    constants = {"table": np.ones((9, 8), "f")}
    file.write_bytes(onnx_bytes(nodes, inputs, [("y", *more[1:])], constants))
    text = (new_from_onnx(root, "net", file) / "model.yaml").read_text()
    assert "#   length: {min: 1, max: 256}\n" in text
    assert "#   ids: {dtype: INT64, shape: [64]}\n" in text
    assert "#   more: {dtype: FP32, shape: [64, 8]}\n" in text


def weights_file(kind: str) -> bytes:
    """A pickle of code, or weights of another shape than the network's."""
    if kind == "pickle":
        return pickle.dumps(re.compile("x"))
    import torch

    file = io.BytesIO()
    torch.save({"weight": torch.ones(3, 4), "bias": torch.zeros(3)}, file)
    return file.getvalue()


@pytest.mark.parametrize(("kind", "message"), [("pickle", "cannot be read"), ("other", "other shapes")])
def test_weights_that_a_build_would_refuse_are_refused_now(root: Path, tmp_path: Path, kind: str, message: str) -> None:
    """The message names the option, and no folder is left."""
    (tmp_path / "net.py").write_text(LINEAR)
    weights = tmp_path / "w.pt"
    weights.write_bytes(weights_file(kind))
    with pytest.raises(BuildError, match=message) as caught:
        new_from_torch(root, "net", "net:build", ["x=FP32:4"], weights, tmp_path)
    assert caught.value.where.startswith("--weights")
    assert not list((root / "models").iterdir())


@pytest.mark.parametrize("factory", ["net:build", "pkg.net:build"])
def test_what_the_python_file_imports_from_its_folder_is_copied_too(root: Path, tmp_path: Path, factory: str) -> None:
    """Modules and whole packages, also those that import each other relatively; and only those."""
    relative = factory.startswith("pkg")
    (tmp_path / "pkg").mkdir()
    base = "from .part import OUT" if relative else "from pkg.part import OUT"
    code = f"import torch\nfrom sizes import IN\n{base}\ndef build(): return torch.nn.Linear(IN, OUT)\n"
    (tmp_path / "pkg" / "net.py" if relative else tmp_path / "net.py").write_text(code)
    (tmp_path / "sizes.py").write_text("from more import IN\n")
    (tmp_path / "more.py").write_text("IN = 4\n")
    (tmp_path / "other.py").write_text("raise RuntimeError\n")
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "part.py").write_text("OUT = 3\n")
    folder = new_from_torch(root, "net", factory, ["x=FP32:4"], None, tmp_path)
    files = {str(file.relative_to(folder)) for file in folder.rglob("*.py")}
    own = {"network.py", "pkg/net.py"} if relative else {"net.py"}
    assert files == {"sizes.py", "more.py", "pkg/__init__.py", "pkg/part.py", *own}
    spec = load(folder, root)
    assert spec.model.network.outputs["output_0"].shape == (3,)
    assert set(build_python(spec)) == files
    assert not {"pkg", "pkg.part", "sizes", "more"} & set(sys.modules)


@pytest.mark.slow
def test_an_axis_of_multiples_is_exported_as_such(root: Path, tmp_path: Path) -> None:
    """torch.export takes an axis that is halved twice only as four times another one."""
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        small = torch.nn.functional.max_pool1d(x, 4)\n"
        "        return x + small.repeat_interleave(4, 2)\n"
        "def build(): return Net()\n"
    )
    folder = new_from_torch(root, "net", "net:build", ["x=FP32:3,L(8-32/4)"], None, tmp_path)
    spec, cache = load(folder, root), BuildCache(root / "cache")
    assert spec.model.network.free_axes["L"].multiple_of == 4
    assert build(plan(spec, cache), cache).signature.inputs[0].shape == (3, -1)


_RECURRENT = """
import torch

class Tagger(torch.nn.Module):
    def __init__(self, with_state):
        super().__init__()
        self.with_state = with_state
        self.rnn = (torch.nn.GRU if with_state else torch.nn.LSTM)(3, 5, batch_first=True)

    def forward(self, x):
        rows, state = self.rnn(x)
        return (rows, state) if self.with_state else rows

def tagger():
    return Tagger(False)

def with_state():
    return Tagger(True)
"""


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "max_batch_size", "shapes"),
    [("tagger", None, [("time", 5)]), ("with_state", 0, [(1, "time", 5), (1, 1, 5)])],
)
def test_a_recurrent_network_over_a_free_axis_builds(
    factory: str, max_batch_size: int | None, shapes: list[tuple[int | str, ...]], root: Path, tmp_path: Path
) -> None:
    """The exporter gives such outputs the example's length; an output without a batch axis means one item a request."""
    (tmp_path / "rnn.py").write_text(_RECURRENT)
    made = new_from_torch(root, factory, f"rnn:{factory}", ["x=FP32:time(1-20),3"], None, tmp_path)
    spec = load(made, root)
    assert spec.model.serving.max_batch_size == max_batch_size
    assert [tensor.shape for tensor in spec.model.network.outputs.values()] == shapes
    cache = BuildCache(root / "cache")
    artifact = build(plan(spec, cache), cache)
    free = [tuple(-1 if size == "time" else size for size in shape) for shape in shapes]
    assert [tensor.shape for tensor in artifact.signature.outputs] == free
    session = open_session(artifact.folder / "model.onnx", "here")
    rows = run_session(session, {"x": np.ones((1, 7, 3), np.float32)}, "here")["output_0"]
    assert rows.shape == (1, 7, 5)


_TABLES = """
import torch

class Scores(torch.nn.Module):
    def forward(self, x, table):
        return torch.einsum("nd,kd->nk", x, table)

class Offsets(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.ones(5, 3))

    def forward(self, x):
        return x - self.table
"""


def test_a_table_that_all_items_share_is_named(root: Path, tmp_path: Path) -> None:
    """The note is not PyTorch's words alone: an input has the batch axis in front, and a table has none."""
    (tmp_path / "tables.py").write_text(_TABLES)
    inputs = ["x=FP32:3", "table=FP32:5,3"]
    with pytest.raises(BuildError) as caught:
        new_from_torch(root, "scores", "tables:Scores", inputs, None, tmp_path)
    assert caught.value.where == "--torch tables:Scores"
    assert "table of shape [2, 5, 3], and runs with [5, 3]" in caught.value.found
    assert "register_buffer('table', ...)" in caught.value.todo


def test_a_network_that_runs_with_one_item_alone_gets_max_batch_size_0(root: Path, tmp_path: Path) -> None:
    """Two items do not fit next to a buffer of five rows; one does, by broadcasting."""
    (tmp_path / "tables.py").write_text(_TABLES)
    made = new_from_torch(root, "net", "tables:Offsets", ["x=FP32:3"], None, tmp_path)
    assert load(made, root).model.serving.max_batch_size == 0
    assert load(made, root).model.network.outputs["output_0"].shape == (5, 3)
    assert "runs with one item" in (made / "model.yaml").read_text()
