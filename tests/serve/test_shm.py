"""Shared memory: what a repository needs, and refusing a file system that is too small."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from tests.server.models import ModelText, ensemble, write_repository
from tritonkit.errors import ServerStartError
from tritonkit.serve.repository import read_models
from tritonkit.serve.shm import MIB, ShmPlan, StubMemory, check_room, largest_message, plan, tensor_bytes


def planned(folder: Path, **configs: str) -> ShmPlan:
    """The plan of models given by their configurations alone."""
    write_repository(folder, {name: ModelText(text, None) for name, text in configs.items()})
    return plan(read_models(folder), ("python", "onnxruntime"))


def vector(size: int, batch: int = 1, more: str = "", backend: str = "python") -> str:
    """A model float32 [size] -> float32 [size]."""
    tensor = f"data_type: TYPE_FP32 dims: [{size}]"
    return (
        f'backend: "{backend}" max_batch_size: {batch} input {{ name: "x" {tensor} }}'
        f' output {{ name: "y" {tensor} }} {more}'
    )


def test_a_small_model_needs_a_minimal_region(tmp_path: Path) -> None:
    """1 MiB is the least that Triton takes, and enough for small tensors."""
    assert planned(tmp_path, net=vector(16, 8)) == ShmPlan((StubMemory("net", 1, MIB),), MIB, MIB)


def test_a_batch_counts_with_inputs_outputs_gaps_and_growth(tmp_path: Path) -> None:
    """8 items of 1 MiB in and 1 MiB out: 1.5 x 16 MiB, half a MiB of overhead, one growth."""
    (need,) = planned(tmp_path, net=vector(MIB // 4, 8)).models
    assert need.bytes_each == (25 + 1) * MIB


@pytest.mark.parametrize(("in_flight", "twice"), [(16, 4), (17, 5), (64, 8), ("few", 0), ("-1", 0), ("", 0)])
def test_items_in_calls_count_twice(tmp_path: Path, in_flight: int | str, twice: int) -> None:
    """A map of 4 items in 8 rows of 1 MiB, with a bound on the items in calls: they are in its region a second time.
    A model that only has parameters of a map's names is no map."""
    more = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in {"callee": "net", "over": "x", "max_in_flight": str(in_flight)}.items()
    )
    config = vector(4, 8, more).replace("dims: [4]", f"dims: [4, {MIB // 32}]")
    (need,) = planned(tmp_path, page_texts=config).models
    assert need.bytes_each == (math.ceil(0.5 + 1.5 * (8 + twice)) + 1) * MIB


@pytest.mark.parametrize(
    ("more", "backend", "stubs"),
    [
        ("", "python", 1),
        ("", "onnxruntime", 2),
        ("instance_group { count: 3 kind: KIND_CPU }", "onnxruntime", 3),
        ("instance_group { count: 2 kind: KIND_CPU } instance_group { kind: KIND_CPU }", "python", 3),
        ("instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] }", "python", 4),
    ],
)
def test_every_instance_has_a_stub(tmp_path: Path, more: str, backend: str, stubs: int) -> None:
    """Counts times devices, and Triton's defaults where the configuration is silent."""
    made = planned(tmp_path, net=vector(4, more=more, backend=backend))
    assert made.models[0].stubs == stubs
    assert made.total_bytes == stubs * MIB


def test_every_served_version_has_its_stubs(tmp_path: Path) -> None:
    """Two versions together need twice the memory."""
    write_repository(tmp_path, {"net": ModelText(vector(4, more="version_policy { all { } }"), None)})
    (tmp_path / "net" / "2").mkdir()
    assert plan(read_models(tmp_path)).models[0].stubs == 2


def test_only_what_python_runs_counts(tmp_path: Path) -> None:
    """Ensembles and native backends need none."""
    made = planned(tmp_path, net=vector(4, backend="openvino"), both=ensemble("net").config)
    assert made == ShmPlan((), MIB, 0)


def test_regions_start_with_the_least_need(tmp_path: Path) -> None:
    """One setting holds for all, and a region never shrinks."""
    made = planned(tmp_path, small=vector(MIB // 4, 2), large=vector(MIB // 4, 8))
    assert made.default_bytes == min(need.bytes_each for need in made.models)
    assert made.total_bytes == sum(need.bytes_each for need in made.models)


def test_open_axes_are_as_long_as_the_longest_warm_up(tmp_path: Path) -> None:
    """The warm-up's largest length counts for outputs too; without one, 128 does."""
    text = (
        'backend: "python" max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [-1] }'
        ' output { name: "y" data_type: TYPE_FP32 dims: [-1, 1024] }'
    )
    warmups = "".join(
        f'model_warmup {{ name: "l{size}" batch_size: 1 inputs {{ key: "x" value'
        f" {{ data_type: TYPE_FP32 dims: [{size}] zero_data: true }} }} }}"
        for size in (64, 512)
    )
    made = planned(tmp_path, silent=text, told=text + warmups)
    sizes = {need.model: need.bytes_each // MIB for need in made.models}
    # 8 items of 128 (512) x 1025 floats are 4.0 (16.0) MiB.
    assert sizes == {"silent": 7 + 1, "told": 25 + 1}


@pytest.mark.parametrize("size", [0, 1])
def test_a_warm_up_of_one_value_or_none(tmp_path: Path, size: int) -> None:
    """Its output has an axis of that size, too."""
    warmup = (
        'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value'
        f" {{ data_type: TYPE_FP32 dims: [{size}] zero_data: true }} }} }}"
    )
    (need,) = planned(tmp_path, net=vector(-1, 8, warmup)).models
    assert need.bytes_each == MIB


def test_open_axes_of_one_tensor_are_those_of_its_sample(tmp_path: Path) -> None:
    """Two open axes of different sizes are not taken for two of the longer size, in a stub or in a request."""
    text = (
        'backend: "python" max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [-1, -1] }'
        ' output { name: "y" data_type: TYPE_FP32 dims: [-1, -1] } model_warmup { name: "w" batch_size: 1'
        ' inputs { key: "x" value { data_type: TYPE_FP32 dims: [32, 8192] zero_data: true } } }'
    )
    write_repository(tmp_path, {"net": ModelText(text, None)})
    models = read_models(tmp_path)
    # 8 items of 32 x 8192 floats are 8 MiB, as input and as output; a request may have both axes four times as long.
    assert plan(models).models[0].bytes_each == (0.5 + 1.5 * 16 + 0.5 + 1) * MIB
    assert largest_message(models) == (16 * 8 + 1) * MIB


def test_an_output_with_more_open_axes_than_any_input_takes_the_longest_for_each(tmp_path: Path) -> None:
    """Scores of each token for each other one follow from the number of tokens."""
    text = (
        'backend: "python" max_batch_size: 1 input { name: "ids" data_type: TYPE_INT32 dims: [-1] }'
        ' output { name: "y" data_type: TYPE_FP32 dims: [-1, -1] } model_warmup { name: "w" batch_size: 1'
        ' inputs { key: "ids" value { data_type: TYPE_INT32 dims: [1024] zero_data: true } } }'
    )
    write_repository(tmp_path, {"net": ModelText(text, None)})
    assert plan(read_models(tmp_path)).models[0].bytes_each == (7 + 1) * MIB  # 0.5 + 1.5 x 4.004, in whole MiB, and 1


def test_open_axes_between_models_are_as_long_as_the_other_end_says(tmp_path: Path) -> None:
    """A step's output has the size that the next model's input has: fixed, or at most in its warm-up."""
    tensors = (
        'input {{ name: "x" data_type: TYPE_FP32 dims: [{}] }} output {{ name: "y" data_type: TYPE_FP32 dims: [{}] }}'
    )
    warmup = (
        f'model_warmup {{ name: "l" batch_size: 1 inputs {{ key: "x" value'
        f" {{ data_type: TYPE_FP32 dims: [{MIB}] zero_data: true }} }} }}"
    )

    def python(inside: str, outside: str, more: str = "") -> str:
        return f'backend: "python" max_batch_size: 2 {tensors.format(inside, outside)} {more}'

    made = planned(
        tmp_path,
        first=python("1", "-1"),
        second=python("-1", "-1"),
        third=python(str(MIB), "1"),
        warmed=python("-1", "1", warmup),
        whole=ensemble("first", "second", "third").config,
        other=ensemble("second", "warmed").config,
    )
    sizes = {need.model: need.bytes_each // MIB for need in made.models}
    # 2 items of 4 MiB, with those whose own dims do not say so.
    assert sizes == {"first": 1, "second": 14, "third": 14, "warmed": 14}


def test_an_ensemble_in_another_hands_on_what_it_knows(tmp_path: Path) -> None:
    """Its own dims may be open, where the models in it say more."""
    tensors = (
        'input {{ name: "x" data_type: TYPE_FP32 dims: [{}] }} output {{ name: "y" data_type: TYPE_FP32 dims: [{}] }}'
    )
    step = 'backend: "python" max_batch_size: 2 '
    made = planned(
        tmp_path,
        wide=step + tensors.format("-1", MIB),
        last=step + tensors.format("-1", "1"),
        inner=ensemble("wide").config.replace("dims: [4]", "dims: [-1]"),
        outer=ensemble("inner", "last").config.replace("dims: [4]", "dims: [-1]"),
    )
    assert {need.model: need.bytes_each // MIB for need in made.models}["last"] == 14


def test_axes_of_models_with_and_without_a_batch_are_counted_from_the_last(tmp_path: Path) -> None:
    """A step gives the windows of a document, which are the next model's batch: their tokens are as many."""
    tensors = (
        'input {{ name: "x" data_type: TYPE_FP32 dims: [{}] }} output {{ name: "y" data_type: TYPE_FP32 dims: [{}] }}'
    )
    made = planned(
        tmp_path,
        cut=f'backend: "python" {tensors.format(1, "-1, -1")}',
        net=f'backend: "python" max_batch_size: 2 {tensors.format(MIB // 64, 1)}',
        whole=ensemble("cut", "net").config,
    )
    # An axis that no model knows is taken for 128: 8 MiB, not 128 x 64 KiB of windows of 128 tokens.
    assert {need.model: need.bytes_each // MIB for need in made.models} == {"cut": 14, "net": 1}


def test_a_sample_says_how_large_a_text_is(tmp_path: Path) -> None:
    """BYTES are taken for 64 KiB unless the warm-up sample is larger."""
    text = (
        'backend: "python" max_batch_size: 8 input { name: "x" data_type: TYPE_STRING dims: [1] }'
        ' output { name: "y" data_type: TYPE_INT64 dims: [1] } model_warmup { name: "w" batch_size: 1'
        ' inputs { key: "x" value { data_type: TYPE_STRING dims: [1] input_data_file: "x" } } }'
    )
    large = ModelText(text, None, {"warmup/x": bytes(2 * MIB)})
    write_repository(tmp_path, {"small": ModelText(text, None), "large": large})
    sizes = {need.model: need.bytes_each // MIB for need in plan(read_models(tmp_path)).models}
    assert sizes == {"small": 2 + 1, "large": 25 + 1}


def test_the_size_of_an_item() -> None:
    """The open axes' product and the size of a BYTES value are the caller's; a scalar has one value."""
    assert tensor_bytes("TYPE_FP16", [2, -1, 3], 10, 0) == 2 * 10 * 3 * 2
    assert tensor_bytes("TYPE_STRING", [3], 1, 100) == 3 * 104
    assert tensor_bytes("TYPE_INT64", [], 1, 0) == 8


NEEDS_9 = ShmPlan((StubMemory("net", 2, 4 * MIB), StubMemory("step", 1, MIB)), MIB, 9 * MIB)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Path:
    """A file system of 8 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)]
    subprocess.run(mount, check=True)
    return tmp_path


def test_a_file_system_that_is_too_small_is_refused(tmpfs: Path) -> None:
    """8 MiB for a need of 9: both are said, with the models and how to get more; for 8 it is enough."""
    try:
        with pytest.raises(ServerStartError, match=r"8 MiB are free.* 9 MiB") as caught:
            check_room(NEEDS_9, tmpfs)
        check_room(ShmPlan((), MIB, 8 * MIB), tmpfs)
    finally:
        subprocess.run(["umount", str(tmpfs)], check=True)  # noqa: S607
    assert caught.value.details.splitlines() == ["net: 2 x 4 MiB", "step: 1 x 1 MiB"]
    assert "size=18m" in caught.value.todo


def test_a_need_beyond_any_file_system_is_refused(tmp_path: Path) -> None:
    """The same without a mount."""
    with pytest.raises(ServerStartError, match="net: 1 x"):
        check_room(ShmPlan((StubMemory("net", 1, 1 << 60),), MIB, 1 << 60), tmp_path)
