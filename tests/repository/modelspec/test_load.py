"""Model folders: the specs that are read, and the words with which others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import SpecError, UsageError
from tritonkit.repository.modelspec import PipelineStep, find_root, load, load_all, load_readable, resolve_file
from tritonkit.repository.modelspec.serving import DynamicBatching, Instances

TORCH = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
"""
CODE = "def build(): ..."


def test_a_minimal_torch_model_is_read(write_model: WriteModel) -> None:
    """Name, network and defaults come out as written."""
    spec = write_model(TORCH, network__py=CODE)
    assert spec.network_name == "net"
    assert spec.model.network.inputs["x"].dims == (4,)
    assert spec.model.serving.model_warmup == "auto"


def refused(write_model: WriteModel, text: str, **files: str) -> SpecError:
    """The error of a folder that must be refused."""
    with pytest.raises(SpecError) as caught:
        write_model(text, **({"network__py": CODE} | files))
    assert caught.value.exit_code == 2
    return caught.value


def test_an_unknown_key_names_its_line_and_the_nearest(write_model: WriteModel) -> None:
    """A misspelled key is refused with file, line, path and a suggestion."""
    error = refused(write_model, TORCH + "serving:\n  max_bacth_size: 4\n")
    assert error.where.endswith("models/net/model.yaml:8 serving.max_bacth_size")
    assert "max_batch_size" in error.wanted


def test_an_unknown_key_deep_inside_is_found(write_model: WriteModel) -> None:
    """Suggestions come from the section the key stands in, through unions and lists too."""
    text = TORCH + "serving:\n  dynamic_batching:\n    default_queue_policy: {max_queue_sise: 3}\n"
    error = refused(write_model, text)
    assert "max_queue_size" in error.wanted
    error = refused(write_model, TORCH + "serving:\n  instance_group:\n  - {cuont: 2}\n")
    assert "count" in error.wanted
    assert error.where.endswith("serving.instance_group.0.cuont")


BY_TARGET = """
serving:
  max_batch_size: 16
  dynamic_batching: {preferred_batch_size: [4, 8], max_queue_delay: 2ms}
  targets:
"""
FASTER = "    gpu: {max_batch_size: 64, dynamic_batching: {}, variant: onnx-fp16}\n"


def test_settings_of_a_target_replace_those_for_all(write_model: WriteModel) -> None:
    """Each replaces the whole setting of its name, on that target alone; what it leaves out stays."""
    text = TORCH + BY_TARGET.replace("serving:", "serving:\n  threads: 3") + FASTER
    folder = write_model(text, network__py=CODE).folder
    project = folder.parents[1]
    on_gpu, on_cpu, on_nvidia = (load(folder, project, target).model.serving for target in ("gpu", "cpu", "nvidia"))
    assert (on_gpu.max_batch_size, on_gpu.variant, on_gpu.threads) == (64, "onnx-fp16", 3)
    assert on_gpu.dynamic_batching == DynamicBatching()
    assert "model_warmup" not in on_gpu.model_fields_set
    assert on_cpu == on_nvidia
    assert (on_cpu.max_batch_size, on_cpu.variant, on_cpu.targets) == (16, "onnx-fp32", {})
    specs, _ = load_readable(project, target="gpu")
    assert [spec.model.serving for spec in specs] == [on_gpu]


def test_settings_of_a_step_may_be_for_one_target(write_model: WriteModel) -> None:
    """The step's own `serving` has targets, too."""
    step = "{step: top_k, parameters: {k: 2, labels: a.txt}, serving: {targets: {gpu: {instance_group: [{count: 4}]}}}}"
    spec = write_model(TORCH + f"pipeline: [network, {step}]\n", network__py=CODE, a__txt="a\nb\n")
    on_gpu = load(spec.folder, spec.folder.parents[1], "gpu").model.pipeline[1]
    assert isinstance(on_gpu, PipelineStep)
    assert on_gpu.serving.instance_group == (Instances(count=4),)
    assert spec.model.pipeline[1].serving.instance_group == ()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("own", "where", "message"),
    [
        ("gpu: {max_batch_size: 4}", ":12 serving.targets.gpu", "preferred_batch_size has 8; max_batch_size is 4"),
        ("gpu: {max_bacth_size: 4}", ":12 serving.targets.gpu.max_bacth_size", "wanted: 'max_batch_size'"),
        ("cuda: {}", ":12 serving.targets.cuda", "'cpu', 'gpu' or 'nvidia'"),
        ("gpu: {sequence_batching: {}}", ":12 serving.targets.gpu", "both dynamic_batching and sequence_batching"),
        ("gpu: {threads: many}", ":12 serving.targets.gpu.threads", "valid integer"),
    ],
)
def test_wrong_settings_of_a_target_are_located(write_model: WriteModel, own: str, where: str, message: str) -> None:
    """They are refused for every target, also where only the settings for all together with them are wrong."""
    error = refused(write_model, f"{TORCH}{BY_TARGET}    {own}\n")
    assert error.where.endswith(f"models/net/model.yaml{where}")
    assert message in str(error)


def test_a_file_that_only_a_target_names_is_missed_there(write_model: WriteModel) -> None:
    """The error says in which section."""
    warm = "{model_warmup: [{name: a, inputs: {x: {file: absent.bin, dtype: FP32, shape: [4]}}}]}"
    spec = write_model(f"{TORCH}serving: {{targets: {{gpu: {warm}}}}}\n", network__py=CODE)
    with pytest.raises(SpecError) as caught:
        load(spec.folder, spec.folder.parents[1], "gpu")
    assert caught.value.where.endswith("models/net/model.yaml serving.targets.gpu.model_warmup")


def test_a_key_given_twice_is_refused(write_model: WriteModel) -> None:
    """YAML would silently keep the last one."""
    error = refused(write_model, TORCH + "description: a\ndescription: b\n")
    assert "given twice" in error.found


def test_a_bare_number_for_a_time_is_refused(write_model: WriteModel) -> None:
    """Times need units, and the message says which."""
    error = refused(write_model, TORCH + "serving:\n  dynamic_batching: {max_queue_delay: 500}\n")
    assert "no unit" in error.found
    assert "500us" in error.wanted


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("serving: {max_batch_size: 4, dynamic_batching: {preferred_batch_size: [8]}}", "preferred_batch_size has 8"),
        ("serving: {max_batch_size: 0, dynamic_batching: {}}", "max_batch_size above 0"),
        ("serving: {version_policy: {latest: 1, all: true}}", "exactly one"),
        ("serving: {sequence_batching: {direct: {}, oldest: {max_candidate_sequences: 2}}}", "one strategy"),
        ("serving: {dynamic_batching: {priority_levels: 2}}", "default_priority_level is 0"),
        ("pipeline: [{step: top_k}]", "`network` exactly once"),
        ("triton: 25.10", "wanted: a release in quotes"),
        ("triton: '2.51'", "a release of Triton as NVIDIA numbers its containers"),
        ("ensemble: {max_inflight_requests: 4}", "wanted: it under serving"),
        ("serving: {model_metrics: [{family: f, buckets: [2, 1]}]}", "ascending order"),
        ("serving: {output: {y: {label_filename: ../labels.txt}}}", "leaves the model's folder"),
    ],
)
def test_settings_that_contradict_are_refused(write_model: WriteModel, extra: str, message: str) -> None:
    """Each contradiction is found before anything is built."""
    assert message in str(refused(write_model, TORCH + extra))


def test_a_missing_file_is_named(write_model: WriteModel) -> None:
    """A hook whose Python file is not there is refused."""
    with pytest.raises(SpecError, match=r"no file 'network\.py'"):
        write_model(TORCH)


@pytest.mark.parametrize("path", ["../secret.onnx", "/etc/passwd", "a/../../b"])
def test_a_path_that_leaves_the_folder_is_refused(write_model: WriteModel, path: str) -> None:
    """Absolute paths and parents never leave the model's folder."""
    error = refused(write_model, f"name: net\nnetwork: {{onnx: {path}}}\n")
    assert "leaves the model's folder" in str(error)


def test_a_link_that_leaves_the_folder_is_refused(root: Path, write_model: WriteModel) -> None:
    """A symbolic link inside the folder may not lead out of it either."""
    outside = root / "outside.onnx"
    outside.write_bytes(b"x")
    (root / "models" / "net").mkdir()
    (root / "models" / "net" / "inner.onnx").symlink_to(outside)
    error = refused(write_model, "name: net\nnetwork: {onnx: inner.onnx}\n")
    assert "leads out of" in error.found


def test_the_name_must_be_the_folders(write_model: WriteModel) -> None:
    """One name for a model, not two."""
    assert "folder's name" in refused(write_model, TORCH.replace("name: net", "name: other")).wanted


def test_what_is_no_yaml_is_refused(write_model: WriteModel) -> None:
    """A syntax error keeps YAML's own line and column."""
    assert "line 1, column" in refused(write_model, "name: [").found


def test_yaml_is_read_as_editors_read_it(write_model: WriteModel) -> None:
    """`off`, `yes` and dates are text, as in YAML 1.2; true and false alone are bools."""
    text = TORCH + "description: 2024-13-45\nserving: {model_warmup: off, dynamic_batching: false}\n"
    spec = write_model(text + "example: {x: {text: yes}}\n", network__py=CODE)
    assert spec.model.description == "2024-13-45"
    assert spec.model.serving.model_warmup == "off"
    assert spec.model.serving.dynamic_batching is False
    assert spec.model.example["x"].text == "yes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no keys"),
        ("a: &a [*a]\n", "aliases written out"),
        ("name: " + "[" * 3000, "nested deeper"),
        ("name: " + "9" * 5000, "not YAML"),
        ("example: {text: {text: Where is it?}}", "in quotes"),
        (TORCH + "1: x\n", "Keys should be strings"),
        (TORCH + "serving: {max_batch_size: true}\n", "valid integer"),
        (TORCH + "serving: {max_batch_size: 99999999999}\n", "less than or equal to 2147483647"),
        (TORCH + "quality: {at_least: .nan}\n", "finite number"),
        (TORCH + f"serving: {{dynamic_batching: {{max_queue_delay: {'9' * 400}s}}}}\n", "64 bits"),
        (TORCH.replace("[4]", "[0]"), "at least 1, or -1"),
        (TORCH.replace("[4]", "[4], optional: true"), "the graph of torch needs all its inputs"),
        (TORCH + "  free_axes: {batch: {max: 4}}\n", "not `batch`"),
        (TORCH + "  free_axes: {n: {max: 4, pad: {x: 0}}}\n", "wanted: all inputs with that axis: []"),
        (TORCH + "  free_axes: {n: {max: 4, pad: {x: 0}}, m: {max: 4, pad: {x: 0}}}\n", "pad for n and m"),
        ('name: net\nnetwork: {onnx: "a\\0b"}\n', "not a file name"),
        (f"name: net\nnetwork: {{onnx: {'a' * 5000}}}\n", "cannot be followed"),
        (TORCH + "pipeline: [network, {step: top_k, parameters: {k: 1, labels: [a]}}]\n", "wanted: a path"),
    ],
)
def test_odd_input_is_refused_and_never_a_traceback(write_model: WriteModel, text: str, message: str) -> None:
    """Values no spec should hold end in a SpecError, whatever library they would have tripped."""
    assert message in str(refused(write_model, text))


def test_a_spec_that_is_not_utf8_is_refused(root: Path, write_model: WriteModel) -> None:
    """The message names the encoding."""
    spec = write_model(TORCH, network__py=CODE)
    spec.file.write_bytes(b"name: \xff\xfe")
    with pytest.raises(SpecError, match="UTF-8"):
        load_all(root)


def test_a_link_to_itself_is_refused(root: Path, write_model: WriteModel) -> None:
    """A symbolic link that leads nowhere is a missing file, not a traceback."""
    (root / "models" / "net").mkdir()
    (root / "models" / "net" / "network.py").symlink_to("network.py")
    with pytest.raises(SpecError, match="cannot be followed"):
        write_model(TORCH)


def test_hidden_folders_are_no_models_and_names_count_once(root: Path, write_model: WriteModel) -> None:
    """The folder that a killed `tritonkit new` left is not read, and a name given twice is one model."""
    write_model(TORCH, network__py=CODE)
    (root / "models" / ".net-1").mkdir()
    (root / "models" / ".net-1" / "model.yaml").write_text(TORCH)
    assert [spec.name for spec in load_all(root, ("net", "net"))] == ["net"]
    assert [spec.name for spec in load_all(root)] == ["net"]


def test_unknown_steps_and_parameters_name_the_nearest(write_model: WriteModel) -> None:
    """Step and parameter names are checked against the steps' contracts."""
    error = refused(write_model, TORCH + "pipeline: [network, {step: topk}]\n")
    assert error.wanted == "'top_k'"
    error = refused(write_model, TORCH + "pipeline: [network, {step: top_k, parameters: {lables: l.txt}}]\n")
    assert error.wanted == "'labels'"


@pytest.mark.parametrize(
    ("value", "message"), [("0", "at least 1"), ("two", "int"), ("true", "int"), ("[1]", "one int")]
)
def test_step_parameters_have_their_types(write_model: WriteModel, value: str, message: str) -> None:
    """A parameter of another type or below its minimum is refused."""
    text = TORCH + f"pipeline: [network, {{step: top_k, parameters: {{k: {value}, labels: l.txt}}}}]\n"
    assert message in refused(write_model, text, l__txt="a\nb\n").wanted


def test_a_step_resolves_its_shapes(write_model: WriteModel) -> None:
    """`$k` in a step's shape is the parameter's value."""
    text = TORCH + "pipeline: [network, {step: top_k, parameters: {k: 2, labels: l.txt}}]\n"
    spec = write_model(text, network__py=CODE, l__txt="a\nb\n")
    assert spec.steps[0] is None
    step = spec.steps[1]
    assert step is not None
    assert step.name == "net_top_k"
    assert step.outputs["label"] == ("BYTES", (2,))
    assert step.parameters["labels"] == "l.txt"


def test_an_unknown_model_names_the_nearest(project: Path) -> None:
    """Asking for a model that is not there is a mistake on the command line."""
    with pytest.raises(UsageError, match="digits"):
        load_all(project, ("digit",))


def test_the_project_is_found_upwards(project: Path, tmp_path: Path) -> None:
    """Commands work from any folder of the project, and say so elsewhere."""
    assert find_root(project / "models" / "digits") == project
    with pytest.raises(UsageError, match="--root"):
        find_root(tmp_path)


def test_a_package_that_is_not_installed_is_named(write_model: WriteModel) -> None:
    """Weights from a missing package say what to install."""
    text = TORCH.replace(
        "torch: network:build", "torch: network:build\n  weights: {package: no_such_package, file: w.safetensors}"
    )
    assert "pip install no-such-package" in refused(write_model, text).todo


def test_files_of_packages_are_found(write_model: WriteModel) -> None:
    """A file reference may name an installed package's file."""
    spec = write_model(TORCH, network__py=CODE)
    from tritonkit.repository.modelspec import PackageFile

    path = resolve_file(PackageFile(package="tritonkit", file="errors.py"), spec, "x")
    assert path.name == "errors.py"


def test_the_schema_file_is_current(project: Path) -> None:
    """docs/model.schema.json is what the code says now: `tritonkit schema > docs/model.schema.json`."""
    from tritonkit.repository.modelspec import schema_text

    assert (project / "docs" / "model.schema.json").read_text() == schema_text()


@pytest.mark.parametrize("name", ["digits", "resnet50", "sentences"])
def test_the_shipped_models_are_read(project: Path, name: str) -> None:
    """The specs in models/ are valid."""
    (spec,) = load_all(project, (name,))
    assert spec.network_name == f"{name}_network"


STEP = "description: one\ninputs: {x: {dtype: FP32, shape: [4]}}\noutputs: {y: {dtype: FP32, shape: [4]}}\n"


def write_step(folder: Path, description: str) -> None:
    """A step's contract in a folder of steps."""
    folder.mkdir(parents=True)
    (folder / "step.yaml").write_text(STEP.replace("one", description))


def test_the_nearest_step_of_a_name_wins(tmp_path: Path) -> None:
    """A model's own steps come before the project's, and those before the shipped ones."""
    folder = tmp_path / "models" / "net"
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(
        "name: net\nnetwork: {torch: net:build, inputs: {x: {dtype: FP32, shape: [4]}},"
        " outputs: {y: {dtype: FP32, shape: [4]}}}\npipeline: [{step: top_k}, network]\n"
    )
    (folder / "net.py").touch()
    descriptions = []
    for place in (tmp_path / "python_backends", folder):
        write_step(place / "steps" / "top_k", place.name)
        (spec,) = load_all(tmp_path)
        descriptions += [step.contract.description for step in spec.steps if step]
    assert descriptions == ["python_backends", "net"]


def test_a_project_is_a_folder_with_models(tmp_path: Path) -> None:
    """From a folder with models/ itself, or from anywhere below one that holds a model."""
    (tmp_path / "models" / "net" / "data").mkdir(parents=True)
    assert find_root(tmp_path) == tmp_path
    with pytest.raises(UsageError, match="tritonkit new"):
        find_root(tmp_path / "models" / "net")
    (tmp_path / "models" / "net" / "model.yaml").touch()
    assert find_root(tmp_path / "models" / "net" / "data") == tmp_path


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("{multiple_of: 4, min: 6, max: 8}", "min has 6"),
        ("{multiple_of: 4, max: 9}", "max has 9"),
        ("{multiple_of: 4, max: 16, warm: [4, 5]}", "warm has 5"),
    ],
)
def test_sizes_of_an_axis_are_multiples(write_model: WriteModel, axis: str, message: str) -> None:
    """`multiple_of` holds for every size that is given, and is the smallest size where none is."""
    text = "name: net\nnetwork: {{onnx: m.onnx, free_axes: {{H: {axis}}}}}\n"
    with pytest.raises(SpecError, match=message) as caught:
        write_model(text.format(axis=axis), m__onnx=b"")
    assert caught.value.wanted == "a multiple of 4"
    fine = write_model(text.format(axis="{multiple_of: 4, max: 16}"), m__onnx=b"")
    axis_of = fine.model.network.free_axes["H"]
    assert (axis_of.min, axis_of.at_least(5), axis_of.at_most(15)) == (4, 8, 12)
