"""The ways of serving on a machine with GPUs. Pure."""

from __future__ import annotations

from dataclasses import replace

from tritonkit.perf.tune import InstanceGroup, Point
from tritonkit.perf.tune.space import gpu_space_of

NOW = Point(InstanceGroup("onnx-fp16", 2, 1, 2), 16, (8,), 2000)


def test_few_instances_on_each_device() -> None:
    """One to four on the GPUs; on the CPU they share the cores, and there are no more of them than cores."""
    space = gpu_space_of(NOW, ["openvino-int8"], ["onnx-fp16"], 3, 2, batches=True)
    assert space.groups == (
        *(InstanceGroup("onnx-fp16", count, 1, 2) for count in (1, 2, 3, 4)),
        *(InstanceGroup("openvino-int8", count, threads) for count, threads in ((1, 3), (2, 1), (3, 1))),
    )
    assert space.batches == (1, 2, 4, 8, 16, 32, 64)
    points = list(space.points(space.groups[0]))
    assert {point.delay_us for point in points} == {0, 2000}
    assert not any(point.preferred for point in points)


def test_a_spec_that_names_a_gpu_keeps_it() -> None:
    """The way that is served now is among the candidates, whatever else the machine has."""
    now = replace(NOW, group=replace(NOW.group, gpus=1))
    groups = gpu_space_of(now, ["onnx-fp16"], ["onnx-fp16"], 3, 4, batches=True).groups
    assert now.group in groups
    assert {group.gpus for group in groups} == {0, 1}


def test_a_network_without_batches_keeps_none() -> None:
    """Instances are all that it has to choose; a delay of 0 is the present one."""
    space = gpu_space_of(Point(NOW.group, 0), [], ["onnx-fp16"], 2, 1, batches=False)
    assert [(p.group.instances, p.max_batch_size) for g in space.groups for p in space.points(g)] == [
        (count, 0) for count in (1, 2, 3, 4)
    ]


def test_instances_count_on_all_gpus_together() -> None:
    """For the simulation, which has one queue before all of them; words and JSON say where they are."""
    assert NOW.batcher.instances == 4
    assert str(NOW).startswith("onnx-fp16, 2 instances on each of 2 GPUs, batches up to 16")
    assert str(InstanceGroup("onnx-fp16", 1, 1, 1)) == "onnx-fp16, 1 instance on the GPU"
    assert Point.from_dict(NOW.to_dict()) == NOW
