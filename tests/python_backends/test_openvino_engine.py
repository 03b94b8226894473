"""Merging, padding and errors of the openvino stand-in, with networks that OpenVINO really runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import openvino
import pytest
from backend_batch import Network, Request, RequestError
from backend_config import TRITON_TO_NUMPY, ModelError
from openvino import opset13 as op
from openvino_choice import Choice
from openvino_engine import Compiled, Engine, Forms, make_engine
from openvino_network import TYPES, input_specs, read_network

Build = Callable[[Any], Any]


def tensor(name: str, dtype: str, dims: list[int]) -> dict[str, Any]:
    """An input or output as Triton's configuration has it."""
    return {"name": name, "data_type": f"TYPE_{dtype}", "dims": dims}


def config(size: int = 8, dims: list[int] | None = None, dtype: str = "FP32") -> dict[str, Any]:
    """x in, y out, of one shape, padding allowed."""
    dims = [3] if dims is None else dims
    return {
        "max_batch_size": size,
        "input": [tensor("x", dtype, dims)],
        "output": [tensor("y", dtype, dims)],
        "parameters": {"ENABLE_BATCH_PADDING": {"string_value": "YES"}},
    }


class Watched(Compiled):
    """A compiled network that notes how many items it was given."""

    def __init__(self, form: Compiled) -> None:
        super().__init__(form.compiled, form.size)
        self.runs: list[int] = []

    def run(self, parts: Any, outputs: Any) -> Any:
        """Run and note."""
        self.runs.append(sum(len(next(iter(part.values()))) for part in parts))
        return super().run(parts, outputs)


def saved(build: Build, settings: dict[str, Any], folder: str) -> Path:
    """The file of y = build(x), whose shape is the configuration's."""
    lead = [-1] if settings["max_batch_size"] else []
    dtype = TYPES[settings["input"][0]["data_type"].removeprefix("TYPE_")]
    x = op.parameter([*lead, *settings["input"][0]["dims"]], dtype, "x")
    x.output(0).set_names({"x"})
    y = build(x)
    y.output(0).set_names({"y"})
    file = Path(folder, "model.xml")
    openvino.save_model(openvino.Model([y], [x]), file, compress_to_fp16=False)
    return file


def compiled_forms(build: Build, settings: dict[str, Any]) -> Forms:
    """The stand-in's network from a saved one."""
    core = openvino.Core()
    with TemporaryDirectory() as folder:
        model = read_network(core, saved(build, settings, folder), settings)
    return Forms(core, model, settings, {"INFERENCE_PRECISION_HINT": "f32"})


def network(build: Build, settings: dict[str, Any], fixed: tuple[int, ...] = ()) -> Network:
    """A Network named m on y = build(x); batches go to the next of the `fixed` sizes, if any."""
    forms = compiled_forms(build, settings)
    choice = Choice({settings["max_batch_size"]: 1.0}, dict.fromkeys(fixed, 0.0))
    kept = {size: Watched(form) for size in fixed if (form := forms.fixed(size))}
    engine = Engine(Watched(forms.free()), kept, choice)
    return Network("m", engine, input_specs(forms.model, settings), settings["max_batch_size"] > 0)


def twice(x: Any) -> Any:
    """y = x + x."""
    return op.add(x, x)


def same(x: Any) -> Any:
    """y = x, as an operation that every type has."""
    return op.reshape(x, op.constant([0, 1]), True)


def picky(x: Any) -> Any:
    """y = x for values up to 4 that divide 12; others make a shape that fails the whole run."""
    largest = op.convert(op.reduce_max(x, op.constant([0, 1]), True), "i64")
    rows = op.concat([op.reshape(largest, op.constant([1]), False), op.constant([-1])], 0)
    twelve = op.constant(np.zeros(12, np.float32))
    nothing = op.reduce_sum(op.reshape(twelve, rows, False), op.constant([0, 1]), False)
    return op.add(x, nothing)


def floats(*shape: int, start: float = 0) -> np.ndarray:
    """Counting float32 values."""
    return (np.arange(np.prod(shape)) + start).reshape(shape).astype(np.float32)


def ask(model: Network, *arrays: np.ndarray) -> list[Any]:
    """y for each request of x, or its error."""
    answers = model.answer([Request({"x": array}, ["y"]) for array in arrays])
    return [answer["y"] if isinstance(answer, dict) else answer for answer in answers]


def test_single_request_is_not_copied() -> None:
    """OpenVINO reads the very array of the request, at any size and at a compiled one."""
    for fixed in ((), (2,)):
        model = network(twice, config(), fixed)
        x = floats(2, 3)
        ask(model, x)
        form = model.engine.fixed[2] if fixed else model.engine.free
        assert np.shares_memory(form._requests[0].get_tensor("x").data, x)


def test_merged_requests_run_once_and_are_split_into_views() -> None:
    """Three requests of 7 items make one run; answers are views of OpenVINO's output."""
    model = network(twice, config())
    arrays = [floats(n, 3, start=n) for n in (1, 2, 4)]
    answers = ask(model, *arrays)
    assert model.engine.free.runs == [7]
    output = model.engine.free._requests[0].get_tensor("y").data
    for array, answer in zip(arrays, answers, strict=True):
        np.testing.assert_array_equal(answer, 2 * array)
        assert np.shares_memory(answer, output)


@pytest.mark.parametrize(("sizes", "used"), [((1,), 4), ((1, 2), 4), ((4,), 4), ((3, 2), 8)])
def test_batches_are_padded_to_the_next_compiled_size(sizes: tuple[int, ...], used: int) -> None:
    """Each item's answer is its own, whatever the padding, after a fuller batch too."""
    model = network(twice, config(), (4, 8))
    ask(model, floats(8, 3, start=100), floats(0, 3))
    arrays = [floats(n, 3, start=10 * n) for n in sizes]
    before = len(model.engine.fixed[used].runs)
    for array, answer in zip(arrays, ask(model, *arrays), strict=True):
        np.testing.assert_array_equal(answer, 2 * array)
    assert model.engine.fixed[used].runs[before:] == [sum(sizes)]
    fed = model.engine.fixed[used]._requests[0].get_tensor("x").data
    assert not fed[sum(sizes) :].any(), "padding holds items of an earlier batch"


def test_ragged_requests_do_not_overwrite_each_other() -> None:
    """Lengths 3, 5, 3, 4 make three runs, and answers that hold when all are done."""
    model = network(twice, config(dims=[-1]))
    arrays = [floats(1, length, start=k) for k, length in enumerate((3, 5, 3, 4))]
    for _ in range(2):
        for array, answer in zip(arrays, ask(model, *arrays), strict=True):
            np.testing.assert_array_equal(answer, 2 * array)
    assert model.engine.free.runs == [2, 1, 1] * 2
    assert len(model.engine.free._requests) == 3


def test_read_only_and_strided_arrays_are_taken() -> None:
    """OpenVINO cannot work on such memory; they are copied."""
    model = network(twice, config())
    wide = floats(2, 6)
    fixed = floats(1, 3)
    fixed.flags.writeable = False
    for array in (wide[:, ::2], fixed):
        (answer,) = ask(model, array)
        np.testing.assert_array_equal(answer, 2 * array)


@pytest.mark.parametrize("fixed", [(), (4,)])
def test_failing_run_blames_the_guilty_request_only(fixed: tuple[int, ...]) -> None:
    """When a merged run fails, each request runs alone and the good ones are answered."""
    model = network(picky, config(dims=[1]), fixed)
    first, second, third = ask(model, *(np.array([[v]], np.float32) for v in (3, 5, 4)))
    assert (first.item(), third.item()) == (3, 4)
    assert isinstance(second, RequestError)
    assert str(second).startswith("model 'm': OpenVINO: ")
    assert "\n" not in str(second)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (floats(1, 4), "model 'm', input 'x': found shape [1, 4], wanted [-1, 3]"),
        (floats(1, 3).astype(np.float64), "model 'm', input 'x': found float64, wanted float32"),
    ],
)
def test_bad_request_is_named_and_its_neighbor_answered(array: np.ndarray, message: str) -> None:
    """The error has model, input, found and wanted; the good request next to it succeeds."""
    bad, good = ask(network(twice, config()), array, floats(1, 3))
    assert message in str(bad)
    np.testing.assert_array_equal(good, 2 * floats(1, 3))


@pytest.mark.parametrize("name", TYPES)
def test_every_type_passes(name: str) -> None:
    """Each type goes in and comes out as itself, merged, alone and padded."""
    for fixed in ((), (4,)):
        model = network(lambda x: op.reshape(x, op.constant([0, 1]), True), config(dims=[1], dtype=name), fixed)
        values = [np.array([[value]], dtype=TRITON_TO_NUMPY[name]) for value in (0, 1)]
        for count in (1, 2):
            for value, answer in zip(values, ask(model, *values[:count]), strict=False):
                assert answer.dtype == value.dtype
                np.testing.assert_array_equal(answer, value)


def test_without_padding_only_full_batches_are_taken() -> None:
    """Each request of the batch gets the native backend's refusal, in its words."""
    settings = {**config(2), "parameters": {}}
    engine = make_engine(compiled_forms(twice, settings), settings)
    strict = Network("m", engine, network(twice, settings).inputs, True)
    (alone,) = ask(strict, floats(1, 3))
    assert "expected requests with batch size '2', got '1'" in str(alone)
    assert "ENABLE_BATCH_PADDING" in str(alone)
    both = ask(strict, floats(1, 3), floats(1, 3))
    assert [isinstance(answer, np.ndarray) for answer in both] == [True, True]


def test_unbatched_network_takes_one_request_at_a_time() -> None:
    """With max_batch_size 0 the first axis belongs to the request."""
    model = network(twice, config(0, [-1, 2]))
    assert [answer.shape for answer in ask(model, floats(1, 2), floats(3, 2))] == [(1, 2), (3, 2)]
    assert model.engine.free.runs == [1, 3]


def test_engine_is_measured_when_it_is_made() -> None:
    """Every size was tried, and a kept form is one that was worth it."""
    settings = {**config(8), "dynamic_batching": {"preferred_batch_size": [4]}}
    engine = make_engine(compiled_forms(twice, settings), settings)
    assert set(engine.choice.free) == {1, 4, 8}
    assert set(engine.fixed) == set(engine.choice.fixed)
    for size, seconds in engine.choice.fixed.items():
        assert seconds < engine.choice.free[size]
    model = Network("m", engine, network(twice, settings).inputs, True)
    for count in range(1, 9):
        (answer,) = ask(model, floats(count, 3))
        np.testing.assert_array_equal(answer, 2 * floats(count, 3))


def test_network_that_zeros_break_is_served_at_any_size() -> None:
    """A network that fails on zeros cannot be measured, and loses nothing."""
    settings = config(4, dims=[1])
    engine = make_engine(compiled_forms(picky, settings), settings)
    assert engine.fixed == {}
    (answer,) = ask(Network("m", engine, network(picky, settings).inputs, True), floats(1, 1, start=2))
    assert answer.tolist() == [[2]]


def test_free_axes_leave_no_size_to_compile() -> None:
    """A network of another free axis has its form for any size alone; so has one without batches."""
    for settings in (config(4, dims=[-1]), config(0, dims=[-1, 2]), config(0, dims=[3, 2])):
        engine = make_engine(compiled_forms(twice, settings), settings)
        assert (engine.fixed, engine.choice) == ({}, Choice())


def test_property_that_openvino_lacks_is_refused() -> None:
    """The message has OpenVINO's reason in one line."""
    forms = compiled_forms(twice, config())
    forms.properties["NO_SUCH_PROPERTY"] = 1
    with pytest.raises(ModelError, match=r"cannot compile the model: .*NO_SUCH_PROPERTY"):
        forms.free()
