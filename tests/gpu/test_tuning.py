"""A search on a GPU: its ways of serving a network there and on the CPU, in a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import onnx_file
from tritonkit.client import Client
from tritonkit.perf.load.openloop import parse_slo
from tritonkit.perf.tune import InstanceGroup, Point
from tritonkit.perf.tune.run import TunePlan, prepared

pytestmark = pytest.mark.gpu

TEXT = "name: net\nnetwork: {onnx: net.onnx}\nserving: {instance_group: [{kind: gpu, gpus: [0], count: 1}]}\n"


def test_ways_of_serving_are_measured_on_both_devices(write_model: WriteModel, root: Path) -> None:
    """Each is served on its device with right answers, and has costs; the card has a name."""
    write_model(TEXT, net__onnx=onnx_file([helper.make_node("Relu", ["x"], ["y"])], ["batch", 4]))
    array = np.array([[-1, 0, 1, 2]], np.float32)
    with prepared(TunePlan(root, "net", parse_slo(["p99=1s"]), target="gpu")) as ready:
        assert ready.gpus[0]
        for group, kind in ((ready.now.group, "KIND_GPU"), (InstanceGroup("onnx-fp32", 1, 1), "KIND_CPU")):
            ready.server.serve(Point(group, 16))
            with Client(ready.server.address) as client:
                (instances,) = client.config("net").instance_group
                assert instances.Kind.Name(instances.kind) == kind
                np.testing.assert_array_equal(client.model("net").predict(x=array)["y"], array.clip(0))
            costs = ready.server.costs(ready.generator, ready.shapes)
            assert costs.most_per_s > 0
