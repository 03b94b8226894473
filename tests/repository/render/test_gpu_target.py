"""Networks on a GPU of tritonkit's server: device, batch sizes, graphs, memory, and the notes that say why."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.repository.render.cases import Case, make_case
from tritonkit.errors import BuildError, RenderError
from tritonkit.repository.export.artifact import Artifact, Independence, MeasuredQuality, Signature, StartNeeds
from tritonkit.repository.modelspec import Serving
from tritonkit.repository.modelspec.serving import Cuda, GraphSpec
from tritonkit.repository.render import ModelPlan
from tritonkit.repository.render.gpu_memory import CONTEXT_BYTES, Card, check_card
from tritonkit.repository.render.gpu_network import TINY_WORK, GpuNetwork, read_network
from tritonkit.repository.render.gpu_target import plan_filling

IMAGE = {"inputs": {"x": ["FP32", [3, 224, 224]]}, "outputs": {"y": ["FP32", [10]]}}
ANY_IMAGE = {"inputs": {"x": ["FP32", [3, "height", "width"]]}, "outputs": {"y": ["FP32", [10]]}}
TINY = {"inputs": {"x": ["FP32", [64]]}, "outputs": {"y": ["FP32", [10]]}}
ARTIFACT = Artifact("net", "onnx-fp32", Path(), {}, Signature((), (), True), None, "", {})
SEQUENCE = {"sequence_batching": {"oldest": {"max_candidate_sequences": 4}}}


def image(serving: dict[str, Any], root: Path, **more: Any) -> Case:
    """A network with a convolution, rendered for tritonkit's server on a GPU."""
    facts = {"signature": IMAGE, "network": "image", "target": "gpu"} | more
    free = {name: {"max": 64} for name in ("height", "width") if facts["signature"] is ANY_IMAGE}
    model = {"name": "net", "network": {"onnx": "model.onnx", "free_axes": free}, "serving": serving}
    return make_case("net", {**facts, "model": model}, root)


def plan_of(case: Case) -> ModelPlan:
    """The only plan of a case."""
    (plan,) = case.plans()
    return plan


def notes(plan: ModelPlan, words: str) -> int:
    """The number of notes with these words."""
    return sum(words in note for note in plan.notes)


@given(st.integers(1, 4096))
def test_sizes_double_up_to_the_largest_batch(largest: int) -> None:
    """Every batch is filled up by less than it has rows, except for the last size."""
    filling = plan_filling(Serving(), GpuNetwork(), ARTIFACT, largest, "model.yaml serving")
    assert filling.graphs
    assert filling.sizes[0] == 1
    assert filling.sizes[-1] == largest
    assert all(after <= 2 * before for before, after in zip(filling.sizes, filling.sizes[1:], strict=False))


def test_each_size_is_warmed_up(tmp_path: Path) -> None:
    """A graph is captured for each, and none at a caller's cost."""
    plan = plan_of(image({"max_batch_size": 12}, tmp_path))
    assert plan.optimization.cuda is not None
    assert [one.batch_size for one in plan.optimization.cuda.graph_spec] == [1, 2, 4, 8, 12]
    assert [sample.batch_size for sample in plan.warmup] == [1, 2, 4, 8, 12]


@pytest.mark.parametrize(
    ("serving", "more", "found"),
    [
        ({"optimization": {"cuda": {"graphs": True}}}, {"signature": ANY_IMAGE}, "graphs: true, and x has a free size"),
        (SEQUENCE | {"optimization": {"cuda": {"graphs": True}}}, {}, "graphs: true, and it keeps sequences"),
        (
            SEQUENCE | {"max_batch_size": 2, "optimization": {"cuda": {"graph_spec": [{"batch_size": 2}]}}},
            {},
            "graph_spec, and it keeps sequences",
        ),
        (
            {"max_batch_size": 8, "optimization": {"cuda": {"graph_spec": [{"batch_size": 1}, {"batch_size": 4}]}}},
            {},
            "batch_size 1, 4, and max_batch_size is 8",
        ),
    ],
)
def test_graphs_that_cannot_be_are_refused(
    serving: dict[str, Any], more: dict[str, Any], found: str, tmp_path: Path
) -> None:
    """The message names the field of the spec and the reason."""
    with pytest.raises(RenderError) as error:
        image(serving, tmp_path, **more).plans()
    assert error.value.found == found
    assert "serving.optimization.cuda" in error.value.where
    assert error.value.todo


def test_errors_name_the_settings_of_the_target_that_hold(tmp_path: Path) -> None:
    """A setting for all targets keeps its place next to one that the target has of its own."""
    sizes = {"optimization": {"cuda": {"graph_spec": [{"batch_size": 2}]}}}
    with pytest.raises(RenderError) as error:
        image({"max_batch_size": 4, "targets": {"gpu": sizes}}, tmp_path).plans()
    assert error.value.where.endswith("models/net/model.yaml serving.targets.gpu.optimization.cuda.graph_spec")
    with pytest.raises(RenderError) as error:
        image({**sizes, "targets": {"gpu": {"max_batch_size": 4}}}, tmp_path).plans()
    assert error.value.where.endswith("models/net/model.yaml serving.optimization.cuda.graph_spec")


def test_errors_name_the_settings_of_a_steps_target(tmp_path: Path) -> None:
    """The step's section has targets, too."""
    step = {"step": "pick", "parameters": {"k": 2, "labels": "a.txt"}, "inputs": {"logits": "y"}}
    own = {"targets": {"gpu": SEQUENCE}}
    model = {"network": {"onnx": "model.onnx"}, "pipeline": ["network", {**step, "serving": own}]}
    facts = {"signature": IMAGE, "network": "image", "target": "gpu", "files": {"a.txt": "a\nb\n"}}
    with pytest.raises(RenderError) as error:
        make_case("net", {**facts, "model": {"name": "net", **model}}, tmp_path).plans()
    assert error.value.where.endswith("model.yaml pipeline.1.serving.targets.gpu.sequence_batching")


def test_a_convolution_over_any_size_has_one_batch_size(tmp_path: Path) -> None:
    """Its plan lasts as long as the shape does; a note has the reason and another way."""
    plan = plan_of(image({"max_batch_size": 8}, tmp_path, signature=ANY_IMAGE))
    cuda = plan.optimization.cuda
    assert cuda is not None
    assert (cuda.graphs, [one.batch_size for one in cuda.graph_spec]) == (False, [8])
    assert {sample.batch_size for sample in plan.warmup} == {8}
    assert notes(plan, "every batch is filled up to 8: x has a free size") == 1
    alone = plan_of(image({"max_batch_size": 1}, tmp_path / "alone", signature=ANY_IMAGE))
    assert alone.optimization.cuda is None


def test_batches_of_items_that_are_not_independent_are_not_filled_up(tmp_path: Path) -> None:
    """Rows of zeros would change the others' answers."""
    case = image({"max_batch_size": 8, "dynamic_batching": False}, tmp_path)
    coupled = replace(case.artifact, independence=Independence("coupled", "seen"))
    plan = plan_of(replace(case, artifact=coupled))
    assert plan.max_batch_size == 8
    assert plan.optimization.cuda is None
    assert notes(plan, "no CUDA graphs: its items are not independent") == 1


def test_shapes_that_a_spec_gives_graphs_are_left_out(tmp_path: Path) -> None:
    """They are for NVIDIA's image; in tritonkit's server all sizes but the batch are fixed."""
    graph = {"batch_size": 4, "input": {"x": {"dim": [3, 224, 224]}}, "graph_lower_bound": {"batch_size": 2}}
    cuda = {"graphs": True, "busy_wait_events": True, "graph_spec": [graph]}
    plan = plan_of(image({"max_batch_size": 4, "optimization": {"cuda": cuda}}, tmp_path))
    assert plan.optimization.cuda == Cuda(graphs=True, busy_wait_events=True, graph_spec=(GraphSpec(batch_size=4),))


@pytest.mark.parametrize(
    ("file", "form", "kind"),
    [
        ("model.pt", "torchscript", "gpu"),
        ("program.pt2", "torch-export", "gpu"),
        ("model.pt2", "torch-compile", "cpu"),
        ("model.pt2", "torch-compile-cuda", "gpu"),
    ],
)
def test_pytorch_runs_where_its_file_does(file: str, form: str, kind: str, tmp_path: Path) -> None:
    """On a GPU with sizes, graphs and one thread, twice; a package for a CPU on the CPU that it was made for."""
    case = image({"max_batch_size": 2}, tmp_path, network=None, file=["model.py", file], variant=form)
    plan = plan_of(case)
    assert [group.kind for group in plan.instances] == [kind]
    assert [group.count for group in plan.instances] == [2 if kind == "gpu" else 1]
    assert (plan.optimization.cuda is not None) == (kind == "gpu")
    assert plan.optimization.gpu_execution_accelerator == ()
    assert notes(plan, "for which torch-compile compiled it") == (kind == "cpu")
    assert plan.parameters["INTRA_OP_THREAD_COUNT"] == ("1" if kind == "gpu" else "2")
    assert [sample.batch_size for sample in plan.warmup] == [1, 2]


@pytest.mark.parametrize(
    ("form", "kind", "device"), [("torch-compile", "gpu", "CPU"), ("torch-compile-cuda", "cpu", "GPU")]
)
def test_a_compiled_package_is_refused_on_another_device(form: str, kind: str, device: str, tmp_path: Path) -> None:
    """Before a server does it."""
    serving = {"instance_group": [{"kind": kind}]}
    case = image(serving, tmp_path, network=None, file=["model.py", "model.pt2"], variant=form)
    with pytest.raises(RenderError, match=rf"kind {kind}, and the variant's file is for the {device}"):
        case.plans()


def test_a_program_runs_where_the_spec_says(tmp_path: Path) -> None:
    """A program of torch.export is for both kinds of device."""
    serving = {"instance_group": [{"kind": "cpu"}]}
    plan = plan_of(image(serving, tmp_path, network=None, file=["model.py", "program.pt2"], variant="torch-export"))
    assert [group.kind for group in plan.instances] == ["cpu"]
    assert plan.optimization.cuda is None


def test_a_network_of_texts_stays_on_the_cpu(tmp_path: Path) -> None:
    """No GPU takes texts."""
    facts = {"inputs": {"x": ["BYTES", [1]]}, "outputs": {"y": ["FP32", [10]]}}
    case = image({"model_warmup": "off"}, tmp_path, signature=facts, network=None)
    plan = plan_of(case)
    assert [group.kind for group in plan.instances] == ["cpu"]
    assert notes(plan, "no GPU takes texts") == 1


@pytest.mark.parametrize(
    ("signature", "kind", "serving", "kinds"),
    [
        (IMAGE, "image", {}, ["gpu"]),
        (TINY, "mlp", {}, ["cpu"]),
        (TINY, "mlp", {"instance_group": [{"kind": "gpu"}]}, ["gpu"]),
        (TINY, "mlp", {"instance_group": [{"gpus": [1]}]}, ["gpu"]),
        (IMAGE, "image", {"instance_group": [{"kind": "cpu"}]}, ["cpu"]),
        (IMAGE, "image", {"instance_group": [{"kind": "gpu"}, {"kind": "cpu"}]}, ["gpu", "cpu"]),
        (IMAGE, "image", {"instance_group": [{"kind": "auto"}]}, ["gpu"]),
        (TINY, "mlp", {"instance_group": [{"kind": "auto"}]}, ["cpu"]),
    ],
)
def test_counted_work_chooses_the_device(
    signature: dict[str, Any], kind: str, serving: dict[str, Any], kinds: list[str], tmp_path: Path
) -> None:
    """The spec's word comes first; `auto` is never left to Triton, which would take the GPU."""
    plan = plan_of(image(serving, tmp_path, signature=signature, network=kind))
    assert [group.kind for group in plan.instances] == kinds


def test_work_is_counted_only_where_a_network_may_be_tiny(tmp_path: Path) -> None:
    """A network that took a core longer, one with sizes that nobody knows, and one not built yet, are not tiny."""
    case = image({}, tmp_path, signature=TINY, network="mlp")
    counted = read_network(case.spec, case.artifact).work
    assert counted is not None
    assert 0 < counted <= TINY_WORK
    slow = replace(case.artifact, start=StartNeeds(0, 1.0))
    assert read_network(case.spec, slow).work is None
    unbuilt = replace(case.artifact, folder=tmp_path / "nowhere")
    assert not read_network(case.spec, unbuilt).is_tiny


def test_memory_is_counted_from_weights_batch_and_sizes(tmp_path: Path) -> None:
    """One item's memory on the CPU stands for the batch; graphs of all sizes share the place of the largest."""
    case = image({"max_batch_size": 4}, tmp_path)
    started = replace(case.artifact, start=StartNeeds(1 << 20, 0.001))
    plan = plan_of(replace(case, artifact=started))
    (note,) = [note for note in plan.notes if "GPU memory" in note]
    assert (
        "about 12.7 MiB on each GPU, for 2 instances (weights 79.1 KiB, inputs and outputs of its graphs 4.6 MiB, a"
        " largest batch, by the CPU's figures 8.0 MiB)" in note
    )


def test_memory_is_counted_for_each_gpu(tmp_path: Path) -> None:
    """A group without GPUs is on all of them; those with the same number of instances are named together."""
    groups = [{"kind": "gpu", "count": count, "gpus": gpus} for count, gpus in ((2, [0, 2]), (1, []), (1, [3]))]
    (note,) = [
        note
        for note in plan_of(image({"instance_group": groups}, tmp_path, network="mlp")).notes
        if "GPU memory" in note
    ]
    shares = [(places, count) for places, count in re.findall(r"on ([^,]+), for (\d) instances? \(weights", note)]
    assert shares == [("GPU 0 and GPU 2", "3"), ("GPU 3", "2"), ("each other GPU", "1")]


@pytest.mark.parametrize(("form", "file"), [("torch-export", "program.pt2"), ("torch-compile-cuda", "model.pt2")])
def test_processes_of_pytorch_must_have_room_on_a_gpu(form: str, file: str, tmp_path: Path) -> None:
    """Each instance of the GPU with the most has weights and a context of CUDA; groups of other GPUs do not count."""
    groups = [{"kind": "gpu", "count": count, "gpus": [gpu]} for count, gpu in ((2, 0), (1, 0), (2, 1))]
    case = image({"instance_group": groups}, tmp_path, network=None, file=["model.py", file], variant=form)
    (case.artifact.folder / "model.py").write_bytes(bytes(1 << 20))
    (case.artifact.folder / file).write_bytes(bytes(1 << 20))
    least = 3 * ((1 << 20) + CONTEXT_BYTES)
    check_card(case.spec, case.artifact, case.plans(), Card("small", least))
    with pytest.raises(RenderError) as error:
        check_card(case.spec, case.artifact, case.plans(), Card("small", least - 1))
    assert "net takes 195.0 MiB of a GPU at least, for 3 instances (weights 3.0 MiB, CUDA itself 192.0 MiB)" in str(
        error.value
    )
    assert "fewer instances" in error.value.todo


@pytest.mark.parametrize(
    "serving",
    [
        {"parameters": {"gpu_mem_limit": "1000"}},
        {"optimization": {"gpu_execution_accelerator": [{"name": "cuda", "parameters": {"gpu_mem_limit": "1000"}}]}},
    ],
)
def test_weights_beyond_the_limit_of_an_instance_are_refused(serving: dict[str, Any], tmp_path: Path) -> None:
    """The build knows before a server that they cannot fit."""
    with pytest.raises(RenderError, match=r"gpu_mem_limit 1000 B, and the weights take 39\.5 KiB"):
        image(serving, tmp_path).plans()


def test_notes_say_what_of_the_spec_may_not_suit_a_gpu(tmp_path: Path) -> None:
    """A delay chosen for a CPU, and a form that is judged on the CPU alone."""
    case = image({"dynamic_batching": {"max_queue_delay": "2ms"}}, tmp_path)
    judged = replace(case.artifact, quality=MeasuredQuality("R2", 1.0, 1.0, 0.0, 4))
    plan = plan_of(replace(case, artifact=judged))
    words = ("max_queue_delay 2000us is the spec's", "was compared with its reference on a CPU")
    assert [notes(plan, phrase) for phrase in words] == [1, 0]
    in_torch = replace(judged, variant="torchscript", files={"model.pt": ""})
    assert notes(plan_of(replace(case, artifact=in_torch)), words[-1]) == 1


TENSORRT = {"gpu_execution_accelerator": [{"name": "tensorrt"}]}


@pytest.mark.parametrize(
    ("form", "precision", "judged"),
    [
        ("onnx-fp32", {"precision_mode": "FP32"}, "computes products in TF32"),
        ("distilled+onnx-fp16", {"precision_mode": "FP16"}, "has its own kernels"),
        ("onnx-int8-qdq", {"precision_mode": "INT8", "trt_fp16_enable": "1"}, "has its own kernels"),
    ],
)
def test_tensorrt_takes_the_precision_of_the_file(
    form: str, precision: dict[str, str], judged: str, tmp_path: Path
) -> None:
    """Engines have a profile from one item to the largest batch; a note says that they were not judged."""
    plan = plan_of(image({"max_batch_size": 8, "optimization": TENSORRT}, tmp_path, variant=form))
    first, then = plan.optimization.gpu_execution_accelerator
    shapes = {"min": "x:1x3x224x224", "opt": "x:8x3x224x224", "max": "x:8x3x224x224"}
    profile = {f"trt_profile_{which}_shapes": shape for which, shape in shapes.items()}
    assert first.parameters == precision | {"max_workspace_size_bytes": str(1 << 30)} | profile
    assert (first.name, then.name, plan.optimization.cuda) == ("tensorrt", "cuda", None)
    assert notes(plan, judged) == 1


def test_a_batch_that_is_preferred_is_the_one_to_tune_for(tmp_path: Path) -> None:
    """The largest of several; what the spec says itself is kept."""
    own = {"precision_mode": "FP16", "trt_engine_cache_path": "/engines"}
    batching = {"preferred_batch_size": [2, 4]}
    accelerators = {"gpu_execution_accelerator": [{"name": "tensorrt", "parameters": own}]}
    serving = {"max_batch_size": 8, "dynamic_batching": batching, "optimization": accelerators}
    (first, _) = plan_of(image(serving, tmp_path)).optimization.gpu_execution_accelerator
    assert first.parameters["trt_profile_opt_shapes"] == "x:4x3x224x224"
    assert first.parameters.items() >= own.items()


def test_tensorrt_needs_no_profile_where_all_is_fixed(tmp_path: Path) -> None:
    """A network that takes one item at a time, and one whose input no profile can name."""
    case = image({"max_batch_size": 1, "optimization": TENSORRT}, tmp_path)
    assert "trt_profile_min_shapes" not in plan_of(case).optimization.gpu_execution_accelerator[0].parameters
    named = {"inputs": {"x:0": ["FP32", [3, 224, 224]]}, "outputs": {"y": ["FP32", [10]]}}
    plan = plan_of(image({"optimization": TENSORRT}, tmp_path / "named", signature=named, network=None))
    assert "trt_profile_min_shapes" not in plan.optimization.gpu_execution_accelerator[0].parameters
    assert notes(plan, "no profile can name the input 'x:0'") == 1


def test_tensorrt_leaves_graphs_of_the_spec_out(tmp_path: Path) -> None:
    """A note says so; other settings of CUDA stay."""
    cuda = {"graphs": True, "busy_wait_events": True}
    plan = plan_of(image({"optimization": {"cuda": cuda, **TENSORRT}}, tmp_path))
    assert plan.optimization.cuda == Cuda(busy_wait_events=True)
    assert notes(plan, "graphs and graph_spec of the spec are left out") == 1


@pytest.mark.parametrize(
    ("serving", "more", "found", "wanted"),
    [
        ({}, {"variant": "onnx-fp8"}, "tensorrt, with the variant onnx-fp8", "has no FP8"),
        (
            {"gpu_execution_accelerator": [{"name": "tensorrt", "parameters": {"trt_engine_cache_path": "engines"}}]},
            {},
            "trt_engine_cache_path 'engines'",
            "an absolute path",
        ),
    ],
)
def test_what_tensorrt_cannot_do_is_refused(
    serving: dict[str, Any], more: dict[str, Any], found: str, wanted: str, tmp_path: Path
) -> None:
    """The build says it before a server does."""
    with pytest.raises(RenderError) as error:
        image({"optimization": TENSORRT | serving}, tmp_path, **more).plans()
    assert error.value.found == found
    assert wanted in error.value.wanted
    assert error.value.where.endswith("model.yaml serving.optimization.gpu_execution_accelerator")


def test_tensorrt_needs_the_sizes_of_free_axes(tmp_path: Path) -> None:
    """An engine is built for them."""
    with pytest.raises(BuildError, match="the range is unknown for axis 1 of input x"):
        image({"optimization": TENSORRT}, tmp_path, signature=dict(ANY_IMAGE)).plans()
