"""Networks in ready-made files: what is read from them, and what is refused."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.ready_files import SCRIPT, program, rewritten, script, write_graph
from tests.repository.optimize.small_specs import built, refused
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export import Artifact, BuildCache, TensorInfo
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.variants import for_target, variant_of

PROGRAM = "{name: net, network: {file: model.pt2}}"
GRAPH = "{name: net, network: {file: model.xml}}"


def shapes(artifact: Artifact) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors by name."""
    signature = artifact.signature
    return {tensor.name: tensor.shape for tensor in (*signature.inputs, *signature.outputs)}


@pytest.mark.slow
def test_a_torchscript_file_is_served_as_it_is(write_model: WriteModel, root: Path) -> None:
    """Its bytes do not change, and its items are proven independent by the library that serves it."""
    content = script()
    artifact = built(write_model(SCRIPT, model__pt=content), BuildCache(root / "cache"))
    assert (artifact.folder / "model.pt").read_bytes() == content
    assert artifact.variant == "as-is"
    assert artifact.quality is None
    assert artifact.independence is not None
    assert artifact.independence.state == "proven"
    assert artifact.signature.batched


@pytest.mark.slow
def test_inputs_of_a_torchscript_file_go_by_their_names(write_model: WriteModel, root: Path) -> None:
    """Names that forward has decide, as in Triton; others count in their order."""
    turned = SCRIPT.replace(
        "{x: {dtype: FP32, shape: [4]}, kept: {dtype: INT64, shape: [4]}}",
        "{kept: {dtype: INT64, shape: [4]}, x: {dtype: FP32, shape: [4]}}",
    )
    artifact = built(write_model(turned, model__pt=script()), BuildCache(root / "cache"))
    assert [tensor.name for tensor in artifact.signature.inputs] == ["x", "kept"]


@pytest.mark.slow
def test_a_program_tells_its_inputs_and_outputs(write_model: WriteModel, root: Path) -> None:
    """Names of inputs, types and shapes are in the archive; the free first axis is the batch."""
    artifact = built(write_model(PROGRAM, model__pt2=program()), BuildCache(root / "cache"))
    assert artifact.signature.batched
    assert shapes(artifact) == {"x": (4,), "kept": (4,), "output_0": (3,), "output_1": ()}
    assert [tensor.dtype for tensor in artifact.signature.inputs] == ["FP32", "INT64"]
    assert {"program.pt2", "model.py", "pytorch_engine.py"} <= artifact.files.keys()


@pytest.mark.slow
def test_a_program_of_fixed_sizes_has_no_batch_axis(write_model: WriteModel, root: Path) -> None:
    """A request then carries all rows."""
    artifact = built(write_model(PROGRAM, model__pt2=program(dynamic_shapes=None)), BuildCache(root / "cache"))
    assert not artifact.signature.batched
    assert artifact.independence is not None
    assert artifact.independence.state == "fixed"
    assert shapes(artifact)["x"] == (2, 4)


@pytest.mark.slow
def test_a_program_with_a_bound_on_its_batch_has_to_be_served_within_it(write_model: WriteModel, root: Path) -> None:
    """Its guards refuse larger batches, so none is tried or served."""
    import torch

    batch = torch.export.Dim("batch", max=8)
    content = program(dynamic_shapes=[{0: batch}, {0: batch}])
    error = refused(write_model(PROGRAM, model__pt2=content), BuildCache(root / "cache"), BuildError)
    assert "takes at most 8 items" in error.found
    bounded = PROGRAM.replace("pt2}", "pt2}, serving: {max_batch_size: 8}")
    artifact = built(write_model(bounded, model__pt2=content), BuildCache(root / "cache"))
    assert artifact.independence is not None
    assert artifact.independence.state == "proven"


@pytest.mark.slow
def test_made_up_input_lies_within_the_bounds_of_a_program(write_model: WriteModel, root: Path) -> None:
    """Sizes that torch.export.Dim names are tried within them, without a word in model.yaml."""
    import torch

    side = torch.export.Dim("side", min=8, max=64)
    axes = [{0: torch.export.Dim("batch"), 2: side, 3: side}]
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 5), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    content = program(module, (torch.ones(2, 3, 16, 16),), dynamic_shapes=axes)
    artifact = built(write_model(PROGRAM, model__pt2=content), BuildCache(root / "cache"))
    assert shapes(artifact) == {"input": (3, -1, -1), "output_0": (4,)}


@pytest.mark.slow
def test_an_openvino_graph_tells_its_inputs_and_outputs(write_model: WriteModel, root: Path) -> None:
    """Both files of the network are served."""
    (root / "models" / "net").mkdir()
    write_graph(root / "models" / "net", "model.xml", {"x": [-1, 4], "kept": [-1, 4]})
    artifact = built(write_model(GRAPH), BuildCache(root / "cache"))
    assert artifact.files.keys() == {"model.xml", "model.bin"}
    assert artifact.signature.inputs == (TensorInfo("x", "FP32", (4,), ("",)), TensorInfo("kept", "INT64", (4,), ("",)))
    assert shapes(artifact)["y"] == (3,)
    assert artifact.independence is not None
    assert artifact.independence.state == "proven"


@pytest.mark.slow
def test_items_that_depend_on_each_other_come_one_by_one(write_model: WriteModel, root: Path) -> None:
    """Its requests leave the first axis out, as with any network that was not made from a person's ONNX file."""
    import torch

    class Coupled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(0)

    tensor = "{dtype: FP32, shape: [4]}"
    text = f"{{name: net, network: {{file: model.pt, inputs: {{x: {tensor}}}, outputs: {{y: {tensor}}}}}}}"
    artifact = built(write_model(text, model__pt=script(Coupled())), BuildCache(root / "cache"))
    assert artifact.signature.single
    assert artifact.independence is not None
    assert artifact.independence.state == "coupled"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ("{y: {dtype: FP32, shape: [3]}}", "gives 2 outputs, and 1 are named"),
        ("{y: {dtype: FP32, shape: [5]}, total: {dtype: FP32, shape: []}}", r"the file gives float32 \[3\]"),
        ("{y: {dtype: FP64, shape: [3]}, total: {dtype: FP32, shape: []}}", "FP64"),
    ],
)
def test_outputs_that_the_file_does_not_give_are_refused(
    write_model: WriteModel, root: Path, outputs: str, found: str
) -> None:
    """A run at build compares them."""
    text = SCRIPT.partition("  outputs")[0] + f"  outputs: {outputs}\n"
    with pytest.raises(BuildError, match=found):
        built(write_model(text, model__pt=script()), BuildCache(root / "cache"))


def not_taken(spec: Spec) -> SpecError:
    """The error for a file whose kind no backend serves."""
    with pytest.raises(SpecError) as caught:
        variant_of(spec)
    return caught.value


def torch_saved(value: Any) -> bytes:
    """A file of torch.save."""
    import torch

    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def keras_archive() -> bytes:
    """An archive as Keras writes it, without weights."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("model.weights.h5", b"")
    return content.getvalue()


def linear() -> Any:
    """A module of PyTorch's own."""
    import torch

    return torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (lambda: torch_saved(linear().state_dict()), "weights without a network (a state_dict)"),
        (lambda: torch_saved(linear()), "a pickle of torch.nn.modules.linear.Linear, which runs code"),
        (lambda: pickle.dumps(print), "is a pickle, which runs code"),
    ],
    ids=["weights", "module", "pickle"],
)
def test_a_pickle_is_not_taken_for_torchscript(
    write_model: WriteModel, root: Path, content: Callable[[], bytes], found: str
) -> None:
    """The message says what the file is, and how it can be served."""
    error = not_taken(write_model(SCRIPT, model__pt=content()))
    assert found in error.found
    assert "network: {torch: network:build, weights: model.pt}" in error.todo


@pytest.mark.parametrize(
    ("name", "content", "way"),
    [
        ("model.onnx", b"\x08\x08", "network: {onnx: model.onnx}"),
        ("model.keras", keras_archive(), "tritonkit new NAME --keras model.keras"),
        ("model.h5", b"\x89HDF", "tritonkit new NAME --keras model.h5.keras"),
        ("model.tflite", b"\0\0\0\0TFL3", "network: {onnx: model.tflite}"),
        ("model.safetensors", b"\x08\0\0\0", "weights: model.safetensors"),
        ("model.ubj", b"{", "tritonkit new NAME --tree model.ubj"),
        ("model.txt", b"tree\n", "tritonkit new NAME --tree model.txt"),
        ("model.pkl", pickle.dumps(print), "tritonkit new NAME --tree model.pkl"),
        ("model.plan", b"", "copy it again"),
        ("model.dat", b"1234", "name a TorchScript file"),
    ],
)
def test_another_file_is_refused_with_its_way(
    write_model: WriteModel, root: Path, name: str, content: bytes, way: str
) -> None:
    """Each message names the command or the key of model.yaml that takes the file."""
    spec = write_model(f"{{name: net, network: {{file: {name}}}}}", **{name.replace(".", "__"): content})
    assert way in not_taken(spec).todo


@pytest.mark.parametrize("key", ["file", "folder"])
def test_a_saved_model_is_refused_with_its_way(write_model: WriteModel, root: Path, key: str) -> None:
    """No backend is left for it."""
    (root / "models" / "net" / "saved").mkdir(parents=True)
    (root / "models" / "net" / "saved" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(SpecError, match=r"(?s)SavedModel of TensorFlow.*tritonkit new NAME --keras"):
        write_model(f"{{name: net, network: {{{key}: saved}}}}")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("network: {file: a.pt, backend: onnx}", "backend"),
        ("network: {torch: a:b, backend: pytorch}", "backend belongs to file"),
        ("network: {file: a.pt, onnx: a.onnx}", "found onnx and file of"),
        ("network: {file: a.pt}, serving: {variant: onnx-fp16}", "served as it is"),
        ("network: {file: a.pt}, optimize: {variants: [onnx-fp16]}", "served as it is"),
        ("network: {file: a.pt}, quality: {metric: accuracy}", "wanted: samples alone"),
        ("network: {folder: a}, serving: {max_batch_size: 4}", "its config.pbtxt"),
        ("network: {folder: a, inputs: {x: {dtype: FP32, shape: [1]}}}", "its config.pbtxt"),
    ],
)
def test_settings_that_do_not_fit_are_refused(write_model: WriteModel, settings: str, found: str) -> None:
    """A file has one form, and a model in Triton's layout its own settings."""
    with pytest.raises(SpecError, match=found):
        write_model(f"{{name: net, {settings}}}")


def test_a_torchscript_file_needs_inputs_and_outputs(write_model: WriteModel, root: Path) -> None:
    """Its archive has no types and no shapes; the message has the names of its arguments."""
    spec = write_model("{name: net, network: {file: model.pt}}", model__pt=script())
    error = refused(spec, BuildCache(root / "cache"), SpecError)
    assert "its forward takes x, kept" in error.found
    assert "tritonkit new NAME --file model.pt" in error.todo


def test_a_named_backend_has_to_be_the_files_own(write_model: WriteModel, root: Path) -> None:
    """The file tells which one serves it."""
    spec = write_model(SCRIPT.replace("model.pt", "model.pt\n  backend: openvino"), model__pt=script())
    assert not_taken(spec).wanted.startswith("pytorch")


def test_torchscript_that_names_files_is_refused(write_model: WriteModel, root: Path) -> None:
    """A program could write where the server may."""
    import torch

    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
            torch.save(x, "taken")
            return x

    spec = write_model(SCRIPT, model__pt=script(Writes()))
    assert "torch.save" in refused(spec, BuildCache(root / "cache"), BuildError).found


def test_torchscript_that_returns_a_dictionary_is_refused(write_model: WriteModel, root: Path) -> None:
    """Triton's backend takes tensors by position."""
    import torch

    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor, kept: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"y": x}

    error = refused(write_model(SCRIPT, model__pt=script(Named())), BuildCache(root / "cache"), BuildError)
    assert "its forward returns Dict" in error.found


def test_a_graph_without_its_weights_is_refused(write_model: WriteModel, root: Path) -> None:
    """The message names the missing file."""
    spec = write_model(GRAPH, model__xml='<?xml version="1.0"?>\n<net name="n" version="11"></net>')
    assert "no model.bin" in refused(spec, BuildCache(root / "cache"), BuildError).found


def test_a_graph_of_another_version_is_refused(write_model: WriteModel, root: Path) -> None:
    """OpenVINO's own words say which versions it reads."""
    text = '<?xml version="1.0"?>\n<net name="n" version="99"><layers></layers><edges></edges></net>'
    spec = write_model(GRAPH, model__xml=text, model__bin="")
    error = refused(spec, BuildCache(root / "cache"), BuildError)
    assert "OpenVINO cannot read model.xml" in error.found


def test_a_plan_needs_inputs_and_outputs(write_model: WriteModel, root: Path) -> None:
    """Only its own TensorRT could tell them."""
    spec = write_model("{name: net, network: {file: model.plan}}", model__plan=b"ptrt")
    assert "names, dtypes and shapes" in refused(spec, BuildCache(root / "cache"), SpecError).wanted


def test_a_plan_is_taken_with_what_it_was_built_for(write_model: WriteModel, root: Path) -> None:
    """Nothing here can run it, and the record next to it lets the server compare TensorRT and GPU."""
    spec = write_model(
        SCRIPT.replace("model.pt", "model.plan"), model__plan=b"ptrt", plan__json='{"tensorrt_version": "10.5.0"}'
    )
    artifact = built(spec, BuildCache(root / "cache"))
    assert artifact.files.keys() == {"model.plan", "plan.json"}
    assert "was not run" in " ".join(artifact.notes)


def test_target_gpu_has_no_backend_for_a_plan(write_model: WriteModel) -> None:
    """NVIDIA's image has one."""
    spec = write_model(SCRIPT.replace("model.pt", "model.plan"), model__plan=b"ptrt")
    with pytest.raises(SpecError, match="--target gpu cannot serve"):
        for_target(spec, "gpu")


def with_guard(text: str) -> Callable[[Any], None]:
    """A change of a program's JSON."""
    return lambda facts: facts["guards_code"].append(text)


def with_size(text: str) -> Callable[[Any], None]:
    """The size of x as another expression."""

    def change(facts: Any) -> None:
        values = facts["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0]["as_expr"]["expr_str"] = text

    return change


def with_target(text: str) -> Callable[[Any], None]:
    """The first operator as another one."""

    def change(facts: Any) -> None:
        facts["graph_module"]["graph"]["nodes"][0]["target"] = text

    return change


def pickled_weight(facts: Any) -> None:
    """The first weight in the form that PyTorch unpickles."""
    next(iter(facts["config"].values()))["use_pickle"] = True


def on_gpu(facts: Any) -> None:
    """The first input on a GPU."""
    facts["graph_module"]["graph"]["tensor_values"]["x"]["device"] = {"type": "cuda", "index": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "change", "found"),
    [
        ("models/model.json", with_guard("__import__('os').system('x') == 0"), "a guard is"),
        ("models/model.json", with_size("__import__('os').getpid()"), "a size is the expression"),
        ("models/model.json", with_size("Max(s0, eval)"), "a size is the expression"),
        ("models/model.json", with_target("torch.hub.load"), "an operator is 'torch.hub.load'"),
        ("model_weights_config.json", pickled_weight, "is pickled"),
        ("models/model.json", on_gpu, "was exported on cuda"),
    ],
)
def test_a_program_that_could_run_code_is_not_loaded(
    write_model: WriteModel, root: Path, file: str, change: Callable[[Any], None], found: str
) -> None:
    """torch.export.load unpickles, evaluates and looks up what an archive says."""
    spec = write_model(PROGRAM, model__pt2=rewritten(program(), file, change))
    assert found in refused(spec, BuildCache(root / "cache"), BuildError).found


def without(*path: Any) -> Callable[[Any], None]:
    """A program's JSON that lacks a value."""

    def change(facts: Any) -> None:
        for key in path[:-1]:
            facts = facts[key]
        del facts[path[-1]]

    return change


def unknown_type(facts: Any) -> None:
    """The first input in a type that PyTorch does not have."""
    facts["graph_module"]["graph"]["tensor_values"]["x"]["dtype"] = 999


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("models/model.json", without("graph_module")),
        ("models/model.json", without("graph_module", "signature")),
        ("models/model.json", without("graph_module", "graph", "tensor_values", "x")),
        ("models/model.json", without("range_constraints")),
        ("models/model.json", lambda facts: facts.update(guards_code=7)),
        ("models/model.json", unknown_type),
        ("model_weights_config.json", without("config")),
        ("model_weights_config.json", lambda facts: facts["config"].update(weight=7)),
    ],
)
def test_a_program_that_lacks_a_part_is_refused(
    write_model: WriteModel, root: Path, file: str, change: Callable[[Any], None]
) -> None:
    """Whatever the archive's JSON is, the message is about the file."""
    spec = write_model(PROGRAM, model__pt2=rewritten(program(), file, change))
    error = refused(spec, BuildCache(root / "cache"), SpecError)
    assert error.found.startswith("the JSON in model.pt2 does not describe a program")


def test_a_damaged_archive_is_refused(write_model: WriteModel, root: Path) -> None:
    """One that is cut off, in which zipfile finds an archive within it, and one with damaged bytes."""
    inner = script()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("net/inner.pt", inner)
        made.writestr("net/more", bytes(100))
    cut = content.getvalue()[: content.getvalue().index(inner) + len(inner)]
    assert "bytes in front" in not_taken(write_model(SCRIPT, model__pt=cut)).found
    damaged = bytearray(inner)
    with zipfile.ZipFile(io.BytesIO(inner)) as archive:
        code = next(info for info in archive.infolist() if info.filename.endswith(".py"))
    start = code.header_offset + 30 + sum(struct.unpack_from("<HH", inner, code.header_offset + 26))
    damaged[start : start + code.compress_size] = bytes(code.compress_size)
    error = refused(write_model(SCRIPT, model__pt=bytes(damaged)), BuildCache(root / "cache"), SpecError)
    assert "model.pt is not a whole archive" in error.found


@pytest.mark.slow
def test_sample_inputs_that_would_be_unpickled_are_refused(write_model: WriteModel, root: Path) -> None:
    """PyTorch reads them without weights_only where that fails; of two files of one name it may read the other."""
    whole, name = program(), "data/sample_inputs/model.pt"
    content, twice = io.BytesIO(), io.BytesIO(whole)
    with zipfile.ZipFile(io.BytesIO(whole)) as source, zipfile.ZipFile(content, "w") as made:
        for info in source.infolist():
            evil = info.filename.endswith(name)
            made.writestr(info.filename, torch_saved(((linear(),), {})) if evil else source.read(info))
    spec = write_model(PROGRAM, model__pt2=content.getvalue())
    assert "its sample inputs are a pickle of torch.nn" in refused(spec, BuildCache(root / "cache"), BuildError).found
    with warnings.catch_warnings(), zipfile.ZipFile(twice, "a") as made:
        warnings.simplefilter("ignore")  # of the same name
        made.writestr(made.namelist()[0], b"")
    assert "two files of one name" in not_taken(write_model(PROGRAM, model__pt2=twice.getvalue())).found


@pytest.mark.parametrize(
    ("text", "files", "backend"),
    [
        (SCRIPT, {"model__pt": script}, "pytorch"),
        pytest.param(PROGRAM, {"model__pt2": program}, "python", marks=pytest.mark.slow),
        (SCRIPT.replace("model.pt", "model.plan"), {"model__plan": lambda: b"ptrt"}, "tensorrt"),
    ],
    ids=["torchscript", "torch-export", "tensorrt"],
)
def test_inspect_says_how_a_file_would_be_served(
    write_model: WriteModel, text: str, files: dict[str, Callable[[], bytes]], backend: str
) -> None:
    """The file is read, and not run."""
    spec = write_model(text, **{name: content() for name, content in files.items()})
    seen = inspect_model(spec, "cpu", 2)
    assert seen.variant == "as-is"
    assert [(model.backend, [tensor.name for tensor in model.inputs]) for model in seen.models] == [
        (backend, ["x", "kept"])
    ]
    assert seen.unknown == ()
