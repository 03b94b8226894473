"""Pipelines: tensors joined by name, both ends compared with each other, files next to each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.repository.render.cases import Case, make_case
from tritonkit.errors import RenderError
from tritonkit.repository.render import ModelPlan
from tritonkit.resources import STEPS, shipped

LABELS = {"labels.txt": "zero\none\n"}
PICK = {"step": "pick", "parameters": {"k": 2, "labels": "labels.txt"}}
WARM_PICK = {**PICK, "serving": {"model_warmup": "auto"}}
"""A step of a user's own that asks for made-up requests."""


def decode(size: int = 4, **more: Any) -> dict[str, Any]:
    """The step image BYTES [1] -> pixels FP32 [size]."""
    return {"step": "decode", "parameters": {"size": size}, **more}


def pipeline(
    parts: list[Any],
    root: Path,
    inputs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    **model: Any,
) -> Case:
    """A model `demo` with the given pipeline around pixels FP32 [4] -> logits FP32 [10]."""
    network = {"onnx": "model.onnx", **model.pop("network", {})}
    facts = {
        "model": {"name": "demo", "network": network, "pipeline": parts, **model},
        "signature": {"inputs": inputs or {"pixels": ["FP32", [4]]}, "outputs": outputs or {"logits": ["FP32", [10]]}},
        "files": LABELS,
    }
    return make_case("demo", facts, root)


def by_name(case: Case) -> dict[str, ModelPlan]:
    """The plans of a case by model name, in order."""
    return {plan.name: plan for plan in case.plans()}


def test_models_come_in_order_and_the_ensemble_last(tmp_path: Path) -> None:
    """Publishing in this order never shows an ensemble whose steps are missing."""
    plans = by_name(pipeline([decode(), "network", PICK], tmp_path))
    assert list(plans) == ["demo_decode", "demo_network", "demo_pick", "demo"]
    assert plans["demo"].backend is None


def test_unconnected_inputs_and_outputs_are_those_of_the_ensemble(tmp_path: Path) -> None:
    """Clients see the first inputs and the last outputs, with the dims of the parts."""
    ensemble = by_name(pipeline([decode(), "network", PICK], tmp_path))["demo"]
    assert [str(t) for t in ensemble.inputs] == ["image BYTES [1]"]
    assert [str(t) for t in ensemble.outputs] == ["label BYTES [2]", "score FP32 [2]"]


def test_a_spec_without_steps_is_one_model_of_its_own_name(tmp_path: Path) -> None:
    """Without a pipeline there is no ensemble."""
    assert list(by_name(pipeline([], tmp_path))) == ["demo"]


def test_a_step_learns_its_free_sizes_from_the_other_end(tmp_path: Path) -> None:
    """A post-processing step with free dims is warmed up at the network's sizes."""
    pick = by_name(pipeline(["network", WARM_PICK], tmp_path))["demo_pick"]
    assert pick.inputs[0].dims == (-1,)
    assert pick.warmup[0].inputs["logits"].shape == (10,)


def test_a_step_is_warmed_up_at_the_warm_sizes_of_the_networks_axis(tmp_path: Path) -> None:
    """An output's free axis without a known name is the network's only free axis."""
    case = pipeline(
        ["network", WARM_PICK],
        tmp_path,
        inputs={"ids": ["INT64", ["length"]]},
        outputs={"logits": ["FP32", ["unk__1"]]},
        network={"free_axes": {"length": {"max": 64, "warm": [8, 32]}}},
    )
    pick = by_name(case)["demo_pick"]
    assert [sample.inputs["logits"].shape for sample in pick.warmup] == [(8,), (32,)]


def test_both_ends_must_have_one_shape(tmp_path: Path) -> None:
    """A mismatch names both models, the tensors and the shapes."""
    with pytest.raises(RenderError) as error:
        pipeline([decode(size=9), "network"], tmp_path).plans()
    assert error.value.found == ("tensor pixels: demo_decode gives pixels FP32 [9]; demo_network takes pixels FP32 [4]")
    assert error.value.where.endswith("models/demo/model.yaml pipeline.network")


@pytest.mark.parametrize("tensor", [["FP16", [4]], ["FP32", [4, 1]]])
def test_both_ends_must_have_one_dtype_and_rank(tensor: list[Any], tmp_path: Path) -> None:
    """Other dtypes and numbers of axes are refused too."""
    with pytest.raises(RenderError, match=r"pipeline\.network: tensor pixels: "):
        pipeline([decode(), "network"], tmp_path, inputs={"pixels": tensor}).plans()


def test_a_free_size_is_compatible_with_any(tmp_path: Path) -> None:
    """-1 at either end joins with a number at the other."""
    pipeline([decode(), "network"], tmp_path, inputs={"pixels": ["FP32", ["n"]]}).plans()


def test_two_takers_of_a_clients_tensor_must_agree(tmp_path: Path) -> None:
    """An input that two parts take from the client has one dtype and shape."""
    inputs = {"pixels": ["FP32", [4]], "image": ["INT64", [1]]}
    with pytest.raises(RenderError, match="takes from the client image BYTES"):
        pipeline([decode(), "network"], tmp_path, inputs=inputs).plans()


def test_a_part_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    """The message has the name that no later part takes, and the one that is missing."""
    parts = [decode(outputs={"pixels": "pixel"}), "network"]
    with pytest.raises(RenderError) as error:
        pipeline(parts, tmp_path).plans()
    assert "no later part takes" in error.value.found
    assert error.value.where.endswith("models/demo/model.yaml pipeline.0")
    assert error.value.wanted == "an input of demo_network: pixels FP32 [4]"


def test_names_can_be_joined_by_hand(tmp_path: Path) -> None:
    """inputs and outputs of a step map its own names to the pipeline's."""
    parts = [decode(inputs={"image": "photo"}, outputs={"pixels": "x"}), "network"]
    ensemble = by_name(pipeline(parts, tmp_path, inputs={"x": ["FP32", [4]]}))["demo"]
    assert ensemble.inputs[0].name == "photo"
    assert ensemble.steps[0].input_map == {"image": "photo"}
    assert ensemble.steps[0].output_map == {"pixels": "x"}


def test_a_tensor_made_again_on_the_way_gets_a_number(tmp_path: Path) -> None:
    """Each part takes the latest tensor of a name; the client's keeps the name."""
    parts = [{"step": "clean"}, decode(inputs={"image": "text"}), "network"]
    ensemble = by_name(pipeline(parts, tmp_path))["demo"]
    assert ensemble.inputs[0].name == "text"
    assert ensemble.steps[0].output_map == {"text": "text_2"}
    assert ensemble.steps[1].input_map == {"image": "text_2"}


def test_one_name_for_an_input_and_an_output_is_refused(tmp_path: Path) -> None:
    """Triton has one name space for an ensemble's tensors."""
    with pytest.raises(RenderError, match=r"pipeline\.network: demo_network gives the client pixels"):
        pipeline(["network"], tmp_path, outputs={"pixels": ["FP32", [4]]}).plans()


def test_parts_share_the_networks_batch_size(tmp_path: Path) -> None:
    """The ensemble takes batches that every part can take."""
    parts = [decode(serving={"max_batch_size": 4}), "network"]
    plans = by_name(pipeline(parts, tmp_path, serving={"max_batch_size": 16}))
    assert [p.max_batch_size for p in plans.values()] == [4, 16, 4]
    assert plans["demo_decode"].dynamic_batching is not None


def test_a_part_without_batches_among_parts_with_them_is_refused(tmp_path: Path) -> None:
    """A batch cannot pass a step that takes none."""
    with pytest.raises(RenderError, match="demo_decode has max_batch_size 0"):
        pipeline([decode(serving={"max_batch_size": 0}), "network"], tmp_path).plans()


def test_a_step_brings_its_files_along(tmp_path: Path) -> None:
    """Code, and modules that all steps share, go in the version folder; labels next to config.pbtxt."""
    case = pipeline(["network", PICK], tmp_path)
    steps = tmp_path / "python_backends" / "steps"
    (steps / "shared.py").touch()
    (steps / "pick" / "pick_core.py").touch()
    pick = by_name(case)["demo_pick"]
    assert sorted(pick.version_files) == ["model.py", "pick_core.py", "shared.py"]
    assert pick.model_files == {"labels.txt": case.spec.folder / "labels.txt"}
    assert pick.parameters == {"k": "2", "labels": "labels.txt"}


def test_a_step_brings_the_shipped_modules_that_it_imports(tmp_path: Path) -> None:
    """Imports count directly or not; a file of the step under a shipped name is its own."""
    case = pipeline(["network", PICK], tmp_path)
    own = tmp_path / "python_backends" / "steps" / "pick"
    (own / "pick_core.py").write_text("def load():\n    from decode_image_core import decode_image\n")
    files = by_name(case)["demo_pick"].version_files
    folder = shipped(STEPS) / "decode_image"
    assert files["decode_image_core.py"] == folder / "decode_image_core.py"
    assert files["decode_image_header.py"] == folder / "decode_image_header.py"
    assert "normalize_core.py" not in files
    (own / "decode_image_core.py").write_text("import normalize_core as model\n")
    files = by_name(case)["demo_pick"].version_files
    assert files["decode_image_core.py"] == own / "decode_image_core.py"
    assert sorted(files) == ["decode_image_core.py", "model.py", "normalize_core.py", "pick_core.py"]
    (own / "pick_core.py").write_text("import (")
    (own / "decode_image_core.py").unlink()
    assert sorted(by_name(case)["demo_pick"].version_files) == ["model.py", "pick_core.py"]


def test_a_parameter_given_twice_is_refused(tmp_path: Path) -> None:
    """A step's serving.parameters cannot replace a parameter of the step."""
    parts = ["network", {**PICK, "serving": {"parameters": {"k": "3"}}}]
    with pytest.raises(RenderError, match=r"pipeline\.1\.serving\.parameters\.k"):
        pipeline(parts, tmp_path).plans()


def test_the_response_cache_is_the_ensembles(tmp_path: Path) -> None:
    """Answers are cached where clients call, so that a hit saves the steps too."""
    plans = by_name(pipeline([decode(), "network"], tmp_path, serving={"response_cache": True}))
    assert [name for name, plan in plans.items() if plan.response_cache] == ["demo"]


def test_a_client_sees_one_value_per_item_as_one_axis(tmp_path: Path) -> None:
    """An output without an axis of its own joins a step's [1] and leaves the ensemble as [1]."""
    outputs = {"logits": ["FP32", [10]], "sure": ["FP32", []]}
    plans = by_name(pipeline([decode(), "network", PICK], tmp_path, outputs=outputs))
    assert plans["demo_network"].outputs[1].dims == ()
    assert "sure FP32 [1]" in [str(t) for t in plans["demo"].outputs]


def asks_for(more: dict[str, Any], root: Path, declared: dict[str, Any] | None = None) -> tuple[ModelPlan, ...]:
    """The plans of a pipeline whose network has one more input than its step gives."""
    inputs = {"pixels": ["FP32", [4]], **more}
    network = {"inputs": declared} if declared else {}
    return pipeline([decode(), "network", PICK], root, inputs, network=network).plans()


def test_an_input_that_no_step_gives_is_refused(tmp_path: Path) -> None:
    """The input would silently become one that callers must send; the message says how to fill it."""
    with pytest.raises(RenderError) as caught:
        asks_for({"token_type_ids": ["INT64", [3]]}, tmp_path)
    assert "no step gives the network's input token_type_ids" in caught.value.found
    assert "network: {fill: {token_type_ids: 0}}" in caught.value.todo
    assert "under network.inputs" in caught.value.todo


def test_an_input_that_the_spec_declares_is_deliberate_and_named(tmp_path: Path) -> None:
    """A note says that callers send it."""
    declared = {"pixels": {"dtype": "FP32", "shape": [4]}, "weight": {"dtype": "FP32", "shape": [1]}}
    ensemble = asks_for({"weight": ["FP32", [1]]}, tmp_path, declared)[-1]
    assert [str(t) for t in ensemble.inputs] == ["image BYTES [1]", "weight FP32 [1]"]
    assert ensemble.notes == (
        "demo: callers have to send weight FP32 [1], which demo_network takes and no part before it gives",
    )


def test_an_input_as_long_as_what_a_step_gives_is_refused_even_if_declared(tmp_path: Path) -> None:
    """Callers cannot know the length that a tokenizer chose."""
    free = {"dtype": "FP32", "shape": ["length"]}
    with pytest.raises(RenderError) as caught:
        pipeline(
            [decode(-1), "network", PICK],
            tmp_path,
            {"pixels": ["FP32", ["length"]], "mask": ["FP32", ["length"]]},
            network={"inputs": {"pixels": free, "mask": free}, "free_axes": {"length": {"max": 9}}},
        ).plans()
    assert "as long as pixels, which they do not know" in caught.value.found


def test_the_batch_axis_of_a_file_for_one_item_is_named(tmp_path: Path) -> None:
    """The spec can leave it out, which is not to be guessed from two shapes."""
    case = pipeline([decode(), "network", PICK], tmp_path, inputs={"pixels": ["FP32", [1, 4]]})
    with pytest.raises(RenderError) as caught:
        case.plans()
    assert "list the file's inputs under network.inputs without it" in caught.value.todo
