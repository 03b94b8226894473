"""Instances, threads and accelerators: never more threads than cores, nothing for a device not used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec import Serving
from tritonkit.repository.render import Target
from tritonkit.repository.render.gpu_network import GpuNetwork
from tritonkit.repository.render.resources import Host, plan_instances, plan_optimization, plan_threads


def site(cores: int = 4, target: Target = "cpu", backend: str = "onnxruntime", is_step: bool = False) -> Host:
    """A machine, as errors would name it."""
    return Host("models/net/model.yaml serving", backend, target, cores, is_step)


def decide(serving: dict[str, Any], where: Host) -> tuple[list[int], str | None]:
    """Counts of the groups, and the thread count of each instance."""
    settings = Serving.model_validate(serving)
    groups = plan_instances(settings, where)
    threads = plan_threads(settings, groups, where).get("intra_op_thread_count")
    return [group.count for group in groups], threads


@pytest.mark.parametrize(
    ("serving", "cores", "counts", "threads"),
    [
        ({}, 4, [1], "4"),
        ({"instance_group": [{"count": 2}]}, 4, [2], "2"),
        ({"instance_group": [{"count": 3}]}, 4, [3], "1"),
        ({"threads": 1}, 4, [4], "1"),
        ({"threads": 3}, 4, [1], "3"),
        ({"threads": 2, "instance_group": [{"count": 1}]}, 4, [1], "2"),
        ({"threads": 1, "instance_group": [{}, {}]}, 4, [1, 1], "1"),
        ({"instance_group": [{"count": 2}, {}]}, 8, [2, 1], "2"),
        ({"instance_group": [{"count": 1}, {"count": 9, "passive": True}]}, 4, [1, 9], "4"),
        ({"instance_group": [{"count": 1}, {"count": 9, "kind": "gpu"}]}, 4, [1, 9], "4"),
        ({"parameters": {"intra_op_thread_count": "2"}}, 4, [2], "2"),
        ({"parameters": {"intra_op_thread_count": "0"}}, 4, [1], "0"),
    ],
)
def test_instances_and_threads_share_the_cores(
    serving: dict[str, Any], cores: int, counts: list[int], threads: str
) -> None:
    """Open values are chosen from the given ones and the number of cores."""
    assert decide(serving, site(cores)) == (counts, threads)


@pytest.mark.parametrize(
    ("serving", "counts", "threads"),
    [
        ({}, [1], "2"),
        ({"threads": 1}, [2], "1"),
        ({"threads": 4}, [1], "4"),
        ({"instance_group": [{"count": 2}]}, [2], "1"),
        ({"instance_group": [{"count": 8}]}, [8], "1"),
        ({"threads": 4, "instance_group": [{"count": 2}]}, [2], "4"),
    ],
)
def test_a_part_of_the_cores_leaves_what_the_spec_gives(
    serving: dict[str, Any], counts: list[int], threads: str
) -> None:
    """Open values are chosen for the two cores; settings for more cores are not refused."""
    assert decide(serving, replace(site(2), part=True)) == (counts, threads)


@pytest.mark.parametrize(
    ("serving", "cores", "alone"),
    [
        ({"threads": 1}, 4, "4"),
        ({"instance_group": [{"count": 2}]}, 4, "4"),
        ({"instance_group": [{"count": 3}]}, 4, None),  # a core is left to others
        ({"threads": 1, "instance_group": [{"count": 2}]}, 4, None),
        ({}, 4, None),
        ({"threads": 1}, 1, None),
        ({"threads": 1, "parameters": {"tritonkit.threads_alone": "0"}}, 4, "0"),
    ],
)
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_run_that_is_alone_takes_the_cores_of_all_instances(
    serving: dict[str, Any], cores: int, alone: str | None, backend: str
) -> None:
    """A lone run takes all cores only if the instances have all of them; a parameter of the user's own wins."""
    settings, where = Serving.model_validate(serving), site(cores, backend=backend)
    parameters = plan_threads(settings, plan_instances(settings, where), where)
    assert parameters.get("tritonkit.threads_alone") == alone


def test_streams_of_the_users_own_have_no_threads_for_a_run_alone() -> None:
    """OpenVINO then chooses the number of threads of an instance."""
    settings = Serving.model_validate({"threads": 1, "parameters": {"NUM_STREAMS": "AUTO"}})
    where = site(4, backend="openvino")
    assert "tritonkit.threads_alone" not in plan_threads(settings, plan_instances(settings, where), where)


def test_other_backends_have_no_threads_for_a_run_alone() -> None:
    """Other backends would not know the parameter."""
    settings, where = Serving(threads=1), site(4, backend="pytorch")
    assert "tritonkit.threads_alone" not in plan_threads(settings, plan_instances(settings, where), where)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_nvidias_backend_has_no_threads_for_a_run_alone(backend: str) -> None:
    """For the nvidia target, instances on the CPU are NVIDIA's too."""
    settings = Serving.model_validate({"threads": 1, "instance_group": [{"kind": "cpu"}]})
    where = site(4, target="nvidia", backend=backend)
    assert "tritonkit.threads_alone" not in plan_threads(settings, plan_instances(settings, where), where)


@pytest.mark.parametrize(
    ("serving", "found"),
    [
        ({"threads": 2, "instance_group": [{"count": 4}]}, "4 instances x 2 threads on 2 cores"),
        ({"threads": 3}, "1 instance x 3 threads on 2 cores"),
        ({"instance_group": [{"count": 3}]}, "3 instances x 1 thread on 2 cores"),
        ({"instance_group": [{"count": 2}, {"count": 1}]}, "3 instances x 1 thread on 2 cores"),
        (
            {"parameters": {"intra_op_thread_count": "0"}, "instance_group": [{"count": 2}]},
            "2 instances x 2 threads on 2 cores",
        ),
    ],
)
def test_more_threads_than_cores_are_refused(serving: dict[str, Any], found: str) -> None:
    """The error says instances, threads and cores, the field, and what to change."""
    with pytest.raises(RenderError) as error:
        decide(serving, site(cores=2))
    assert error.value.found == found
    assert error.value.where == "models/net/model.yaml serving.instance_group"
    assert "--cores" in error.value.todo


@given(st.integers(1, 64), st.none() | st.integers(1, 64), st.lists(st.none() | st.integers(1, 64), max_size=3))
def test_instances_times_threads_never_exceed_the_cores(
    cores: int, threads: int | None, counts: list[int | None]
) -> None:
    """For any spec and machine, the plan fits the cores or there is an error."""
    settings: dict[str, Any] = {"instance_group": [{} if c is None else {"count": c} for c in counts]}
    if threads is not None:
        settings["threads"] = threads
    try:
        groups, per_instance = decide(settings, site(cores))
    except RenderError:
        return
    assert sum(groups) * int(per_instance or 0) <= cores
    assert int(per_instance or 0) >= 1


def test_the_specs_own_backend_parameters_win() -> None:
    """A parameter of the spec replaces the chosen one of the same name."""
    serving = Serving(parameters={"inter_op_thread_count": "3", "execution_mode": "1"})
    parameters = plan_threads(serving, plan_instances(serving, site()), site())
    assert parameters == {"intra_op_thread_count": "4", "inter_op_thread_count": "3", "execution_mode": "1"}


@pytest.mark.parametrize("text", ["two", "-1", "4"])
def test_two_different_thread_counts_are_refused(text: str) -> None:
    """threads and intra_op_thread_count must agree, and be numbers."""
    serving = Serving(threads=2, parameters={"intra_op_thread_count": text})
    with pytest.raises(RenderError, match="intra_op_thread_count"):
        plan_instances(serving, site())


def test_threads_for_a_python_model_are_refused() -> None:
    """Triton's Python backend has no thread setting, so one in the spec would do nothing."""
    with pytest.raises(RenderError, match="threads are given for the backend python"):
        plan_instances(Serving(threads=2), site(backend="python"))


@pytest.mark.parametrize(
    ("serving", "cores", "counts", "threads", "streams"),
    [
        ({}, 4, [1], "4", "1"),
        ({"instance_group": [{"count": 2}]}, 4, [2], "4", "2"),
        ({"instance_group": [{"count": 3}]}, 4, [3], "3", "3"),
        ({"threads": 1}, 4, [4], "4", "4"),
        ({"threads": 3}, 4, [1], "3", "1"),
        ({"instance_group": [{"kind": "auto"}]}, 4, [1], "4", "1"),
        ({"instance_group": [{"count": 2}, {"count": 9, "passive": True}]}, 4, [2, 9], "4", "2"),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "gpu", "nvidia"])
def test_openvino_instances_share_threads_and_streams(
    serving: dict[str, Any], cores: int, counts: list[int], threads: str, streams: str, target: Target
) -> None:
    """Its parameters are those of all instances together; on any target they run on the CPU."""
    where = site(cores, target, "openvino")
    settings = Serving.model_validate(serving)
    groups = plan_instances(settings, where)
    assert [group.count for group in groups] == counts
    assert {group.kind for group in groups} <= {"cpu", "auto"}
    parameters = plan_threads(settings, groups, where)
    assert parameters["INFERENCE_NUM_THREADS"] == threads
    assert parameters["NUM_STREAMS"] == streams


@pytest.mark.parametrize(
    ("serving", "where", "found"),
    [
        ({"threads": 3}, "serving.instance_group", "1 instance x 3 threads on 2 cores"),
        ({"parameters": {"INFERENCE_NUM_THREADS": "2"}}, "serving.parameters.INFERENCE_NUM_THREADS", "'2'"),
        ({"instance_group": [{"kind": "gpu"}]}, "serving.instance_group", "kind gpu is given"),
        ({"instance_group": [{"kind": "model"}]}, "serving.instance_group", "kind model is given"),
    ],
)
def test_what_openvino_cannot_do_is_refused(serving: dict[str, Any], where: str, found: str) -> None:
    """More threads than cores, a second way to say threads, and kinds that Triton refuses."""
    with pytest.raises(RenderError) as error:
        plan_instances(Serving.model_validate(serving), site(2, backend="openvino"))
    assert error.value.where == f"models/net/model.yaml {where}"
    assert found in error.value.found


def test_openvino_keeps_gpu_numbers_out() -> None:
    """The GPUs of a spec are NVIDIA's, for its other variants."""
    serving = Serving.model_validate({"instance_group": [{"gpus": [0]}]})
    (group,) = plan_instances(serving, site(target="gpu", backend="openvino"))
    assert (group.kind, group.gpus) == ("cpu", ())


def test_python_instances_are_not_counted_against_the_cores() -> None:
    """A python model may have more instances than cores, and has one by default."""
    assert decide({}, site(2, backend="python")) == ([1], None)
    assert decide({"instance_group": [{"count": 8}]}, site(2, backend="python")) == ([8], None)


@pytest.mark.parametrize(
    ("target", "backend", "is_step", "kind"),
    [
        ("cpu", "onnxruntime", False, "cpu"),
        ("gpu", "onnxruntime", False, "gpu"),
        ("nvidia", "onnxruntime", False, "gpu"),
        ("gpu", "python", False, "gpu"),
        ("gpu", "python", True, "cpu"),
        ("cpu", "tensorrt", False, "gpu"),
    ],
)
def test_kind_follows_the_target(target: Target, backend: str, is_step: bool, kind: str) -> None:
    """Networks run where the target says, steps on the CPU, TensorRT plans on the GPU."""
    where = site(target=target, backend=backend, is_step=is_step)
    assert [group.kind for group in plan_instances(Serving(), where)] == [kind]


def test_gpus_without_a_kind_wait_for_the_gpu_target() -> None:
    """The same spec renders for both targets: GPU numbers appear for the GPU target only."""
    serving = Serving.model_validate({"instance_group": [{"gpus": [0, 1]}]})
    assert plan_instances(serving, site())[0].gpus == ()
    assert plan_instances(serving, site(target="gpu"))[0].gpus == (0, 1)


def test_gpu_instances_get_no_thread_parameters() -> None:
    """Threads are for instances on the CPU."""
    serving = Serving()
    where = site(target="nvidia")
    assert plan_threads(serving, plan_instances(serving, where), where) == {}


def test_profiles_are_for_tensorrt_plans() -> None:
    """Triton refuses a profile for any other backend, and so does the renderer."""
    serving = Serving.model_validate({"instance_group": [{"profile": ["0"]}]})
    with pytest.raises(RenderError, match="profile is given for the backend onnxruntime"):
        plan_instances(serving, site())
    assert plan_instances(serving, site(backend="tensorrt"))[0].profile == ("0",)


BOTH = {
    "optimization": {
        "graph_level": 1,
        "cuda": {"graphs": True},
        "gpu_execution_accelerator": [{"name": "cuda"}],
        "cpu_execution_accelerator": [{"name": "openvino"}],
    }
}


@pytest.mark.parametrize(
    ("target", "groups", "on_gpu", "on_cpu"),
    [
        ("cpu", [], False, True),
        ("gpu", [], True, False),
        ("nvidia", [], True, False),
        ("cpu", [{"kind": "gpu"}], True, False),
        ("cpu", [{"kind": "gpu"}, {"kind": "cpu"}], True, True),
        ("cpu", [{"kind": "auto"}], True, True),
        ("gpu", [{"kind": "model"}], True, True),
    ],
)
def test_accelerators_follow_the_instances(
    target: Target, groups: list[dict[str, str]], on_gpu: bool, on_cpu: bool
) -> None:
    """Settings of a device are rendered if an instance may run on it, and left out otherwise."""
    serving = Serving.model_validate({**BOTH, "instance_group": groups})
    where = site(target=target)
    optimization = plan_optimization(serving, plan_instances(serving, where), where)
    assert [a.name for a in optimization.gpu_execution_accelerator] == ["cuda"] * on_gpu
    assert (optimization.cuda is not None) == on_gpu
    assert [a.name for a in optimization.cpu_execution_accelerator] == ["openvino"] * on_cpu
    assert optimization.graph_level == 1


@pytest.mark.parametrize("target", ["cpu", "gpu", "nvidia"])
def test_openvino_has_no_accelerators_and_no_graph_levels(target: Target) -> None:
    """Settings for ONNX Runtime are left out; the rest stays."""
    serving = Serving.model_validate(BOTH | {"optimization": {**BOTH["optimization"], "priority": "max"}})
    where = site(target=target, backend="openvino")
    optimization = plan_optimization(serving, plan_instances(serving, where), where)
    assert optimization == Serving.model_validate({"optimization": {"priority": "max"}}).optimization


def test_nvidia_target_brings_tensorrt_along() -> None:
    """Without an accelerator in the spec, ONNX Runtime in NVIDIA's image uses TensorRT in FP32."""
    serving = Serving()
    where = site(target="nvidia")
    optimization = plan_optimization(serving, plan_instances(serving, where), where)
    (accelerator,) = optimization.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert accelerator.parameters == {"precision_mode": "FP32", "max_workspace_size_bytes": "1073741824"}


@pytest.mark.parametrize(
    ("given", "names", "parameters"),
    [
        ([], ["cuda"], {"prefer_nhwc": "1", "use_tf32": "0"}),
        ([{"name": "tensorrt"}], ["tensorrt", "cuda"], {"prefer_nhwc": "1", "use_tf32": "0"}),
        (
            [{"name": "cuda", "parameters": {"prefer_nhwc": "0", "use_tf32": "1"}}],
            ["cuda"],
            {"prefer_nhwc": "0", "use_tf32": "1"},
        ),
    ],
)
def test_gpu_target_brings_the_cuda_provider_along(
    given: list[dict[str, Any]], names: list[str], parameters: dict[str, str]
) -> None:
    """It runs what TensorRT leaves; options of the spec's are kept."""
    serving = Serving.model_validate({"optimization": {"gpu_execution_accelerator": given}})
    where = site(target="gpu")
    optimization = plan_optimization(serving, plan_instances(serving, where), where)
    assert [one.name for one in optimization.gpu_execution_accelerator] == names
    assert optimization.gpu_execution_accelerator[-1].parameters == parameters


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("NvTensorRTRTX", "have no provider of TensorRT-RTX"), ("auto_mixed_precision", "cuda or tensorrt, those of")],
)
def test_gpu_target_refuses_accelerators_that_its_server_lacks(name: str, wanted: str) -> None:
    """The message has the target that takes others."""
    serving = Serving.model_validate({"optimization": {"gpu_execution_accelerator": [{"name": name}]}})
    where = site(target="gpu")
    with pytest.raises(RenderError, match=f"'{name}', with target gpu") as caught:
        plan_optimization(serving, plan_instances(serving, where), where)
    assert wanted in caught.value.wanted
    assert "--target nvidia" in caught.value.todo


def test_gpu_target_computes_tf32_where_the_variant_is() -> None:
    """FP32 stays FP32; ONNX Runtime by itself would compute its products in TF32."""
    serving, where = Serving(), replace(site(target="gpu"), network=GpuNetwork(variant="distilled+onnx-tf32"))
    (accelerator,) = plan_optimization(serving, plan_instances(serving, where), where).gpu_execution_accelerator
    assert accelerator.parameters["use_tf32"] == "1"


@pytest.mark.parametrize(
    ("target", "backend", "given", "count"),
    [
        ("gpu", "onnxruntime", {}, 2),
        ("gpu", "pytorch", {}, 2),
        ("gpu", "python", {}, 1),
        ("gpu", "openvino", {}, 1),
        ("gpu", "onnxruntime", {"kind": "cpu"}, 1),
        ("gpu", "onnxruntime", {"count": 3, "gpus": [0, 1]}, 3),
        ("nvidia", "onnxruntime", {}, 1),
    ],
)
def test_networks_on_a_gpu_of_tritonkits_server_have_two_instances(
    target: Target, backend: str, given: dict[str, Any], count: int
) -> None:
    """Tensors of one run are copied during the other; a count in the spec stays."""
    serving = Serving.model_validate({"instance_group": [given]})
    assert [group.count for group in plan_instances(serving, site(target=target, backend=backend))] == [count]


def test_python_networks_get_no_accelerator() -> None:
    """Only ONNX Runtime gets the default accelerator."""
    serving = Serving()
    where = site(target="gpu", backend="python")
    optimization = plan_optimization(serving, plan_instances(serving, where), where)
    assert optimization.gpu_execution_accelerator == ()
