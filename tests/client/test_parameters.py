"""Values a call sends next to its tensors: parameters, a request id, the number of classes."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tritonkit.client import Adaptive, AsyncClient, Cache, Client, SharedMemory
from tritonkit.errors import InvalidInput
from tritonkit.testing import AsyncMemoryTransport, FakeModel, Given, MemoryTransport

LEVEL = {"level": 3, "share": 0.5, "name": "ä", "fast": True}


def shows(calls: list[int] | None = None) -> FakeModel:
    """A model that answers each item with the parameters and the id of its request, and notes its batches."""

    def function(inputs: Given) -> dict[str, Any]:
        count = len(inputs["x"])
        if calls is not None:
            calls.append(count)
        return {"y": [[json.dumps([inputs.parameters, inputs.request_id])]] * count}

    return FakeModel({"x": ("FP32", [1])}, {"y": ("BYTES", [1])}, function, independent_items="declared")


def shown(reply: Any) -> Any:
    """The values that the model saw."""
    return json.loads(reply["y"][0, 0])


def streams(inputs: Given) -> Any:
    """A decoupled model that shows its parameters twice."""
    for _ in range(2):
        yield {"y": [[json.dumps([inputs.parameters, inputs.request_id])]]}


def scores(inputs: Given) -> dict[str, Any]:
    """Three scores of each item, and a text."""
    return {
        "score": np.stack([[x, -x, 0.5] for x in inputs["x"][:, 0]]).astype(np.float32),
        "text": [["a"]] * len(inputs["x"]),
    }


RANKED = FakeModel({"x": ("FP32", [1])}, {"score": ("FP32", [3]), "text": ("BYTES", [1])}, function=scores)


def test_every_way_of_calling_carries_them() -> None:
    """predict, submit, many, streams and sequences; also the types stay: True is not 1."""
    models = {"shows": shows(), "streams": FakeModel({"x": ("FP32", [1])}, {"y": ("BYTES", [1])}, streams)}
    with Client(transport=MemoryTransport(models)) as client:
        model = client.model("shows")
        reply = model.predict(x=1.0, parameters=LEVEL, request_id="a")
        assert shown(reply) == [LEVEL, "a"]
        assert type(shown(reply)[0]["fast"]) is bool
        assert reply.request_id == "a"
        assert shown(model.submit(x=1.0, parameters=LEVEL).result()) == [LEVEL, ""]
        many = model.predict_many([np.zeros((20, 1), np.float32), [2.0]], parameters={"level": np.int64(3)})
        assert [shown(reply) for reply in many] == [[{"level": 3}, ""]] * 2
        replies = list(client.model("streams").stream(x=1.0, parameters=LEVEL, request_id="of a stream"))
        assert [shown(reply) for reply in replies] == [[LEVEL, "of a stream"]] * 2
        assert [reply.request_id for reply in replies] == ["of a stream"] * 2
        with model.sequence(7) as sequence:
            assert shown(sequence.predict(x=1.0, parameters=LEVEL, request_id="b")) == [LEVEL, "b"]
            assert shown(sequence.predict(x=1.0, last=True)) == [{}, ""]


def test_tasks_carry_them_too() -> None:
    """The asyncio client has the same arguments."""

    async def main() -> None:
        async with AsyncClient(transport=AsyncMemoryTransport({"shows": shows()})) as client:
            model = await client.model("shows")
            reply = await model.predict(x=1.0, parameters=LEVEL, request_id="a")
            assert shown(reply) == [LEVEL, "a"]
            assert shown(await model.submit(x=1.0, parameters=LEVEL)) == [LEVEL, ""]
            async with model.sequence() as sequence:
                assert shown(await sequence.predict(x=1.0, parameters=LEVEL, last=True))[0] == LEVEL
            answers = [shown(r) async for r in model.predict_many([1.0], parameters=LEVEL)]
            assert answers == [[LEVEL, ""]]

    asyncio.run(main())


@pytest.mark.parametrize("one", [1, True, 1.0, "1", -0.0])
def test_a_batch_never_joins_different_parameters(one: Any) -> None:
    """Also where Python's values are equal (1, 1.0 and True; 0.0 and -0.0), and each caller gets its own."""
    values: list[Any] = [one, 0.0 if one == 0 else 1, None]
    calls: list[int] = []
    batching = Adaptive(max_batch=8, max_wait_ms=200)
    with Client(transport=MemoryTransport({"shows": shows(calls)}), batching=batching) as client:
        model = client.model("shows")

        def call(at: int) -> None:
            value = values[at % 3]
            named = None if value is None else {"level": value}
            answer = shown(model.predict(x=float(at), parameters=named))[0]
            assert repr(answer) == repr(named or {})

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(call, range(24)))
    assert sum(calls) == 24


def test_a_call_with_an_id_is_sent_alone() -> None:
    """A request has one id, so callers with different ids cannot share one."""
    calls: list[int] = []
    batching = Adaptive(max_batch=8, max_wait_ms=200)
    with Client(transport=MemoryTransport({"shows": shows(calls)}), batching=batching) as client:
        model = client.model("shows")
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(lambda at: shown(model.predict(x=1.0, request_id=str(at)))[1], range(8)))
    assert ids == [str(at) for at in range(8)]
    assert calls == [1] * 8


def test_the_cache_tells_parameters_apart_and_ids_not() -> None:
    """An answer is used again for the same parameters in any order; the id is the caller's own."""
    calls: list[int] = []
    with Client(transport=MemoryTransport({"shows": shows(calls)}), cache=Cache()) as client:
        model = client.model("shows")
        for level in (1, 1.0, True, "1", 2):
            received = shown(model.predict(x=1.0, parameters={"level": level, "b": 1}))[0]
            assert repr(received["level"]) == repr(level)
        reply = model.predict(x=1.0, parameters={"b": 1, "level": 2}, request_id="mine")
        assert (reply.origin, reply.request_id, len(calls)) == ("l1", "mine", 5)
        assert model.predict(x=1.0).origin == "server"


def test_keys_of_parameters_are_the_same_in_every_process() -> None:
    """A protobuf map has no order: the key is of a sorted one, whatever the order of the call."""
    from tritonkit.client.request import InferRequest, ModelState
    from tritonkit.client.wire.signature import ModelSignature, TensorSpec

    spec = {"x": TensorSpec("x", "FP32", (1,))}
    state = ModelState(ModelSignature("m", ("1",), 0, spec, spec))
    bodies = set()
    for order in (1, -1):
        names = [f"name{at}" for at in range(40)][::order]
        request = InferRequest(("m", ""), {"x": [1.0]}, parameters=dict.fromkeys(names, 1))
        request.check(state)
        bodies.add(b"".join(request.canonical()))
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"parameters": [1]}, 'inputs={"parameters": ...}'),
        ({"parameters": {"level": None}}, "NoneType"),
        ({"parameters": {"level": [1]}}, "a str, an int, a float or a bool"),
        ({"parameters": {"level": b"a"}}, "bytes"),
        ({"parameters": {"level": 2**63}}, "64 bits"),
        ({"parameters": {"level": "\ud800"}}, "lone surrogate"),
        ({"parameters": {"": 1}}, "not empty"),
        ({"parameters": {3: 1}}, "the name 3"),
        ({"parameters": {"timeout": 1}}, "use timeout_s="),
        ({"parameters": {"sequence_id": 1}}, "model.sequence"),
        ({"parameters": {"triton_x": 1}}, "reserves for itself"),
        ({"request_id": 3}, "request_id= is a int"),
        ({"request_id": "\ud800"}, "lone surrogate"),
        ({"request_id": "x" * 70_000}, "70000 bytes"),
        ({"classification": 0}, "a whole number from 1"),
        ({"classification": True}, "a whole number from 1"),
        ({"classification": {"label": 3}}, "no such output"),
        ({"classification": 2}, "FP32"),
        ({"classification": {"score": 2}, "outputs": ["text"]}, "leaves out"),
    ],
)
def test_wrong_ones_are_refused_before_sending(more: dict[str, Any], says: str) -> None:
    """The message names the parameter, and the argument that is meant for it."""
    with Client(transport=MemoryTransport({"ranked": RANKED})) as client, pytest.raises(InvalidInput) as caught:
        client.model("ranked").predict(x=1.0, **more)
    assert says in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"batching": Adaptive(max_wait_ms=1)}, {"shared_memory": SharedMemory()}])
def test_classes_in_place_of_values(options: dict[str, Any]) -> None:
    """The best of one output, next to another as it is; in a batch each item has its own."""
    with Client(transport=MemoryTransport({"ranked": RANKED}), **options) as client:
        model = client.model("ranked")
        reply = model.predict(x=[[2.0], [-2.0]], classification={"score": 2})
        assert reply["score"].tolist() == [[b"2.000000:0", b"0.500000:2"], [b"2.000000:1", b"0.500000:2"]]
        assert reply["text"].tolist() == [[b"a"], [b"a"]]
        one = model.predict(x=2.0, outputs=["score"], classification=np.int32(1))
        assert one["score"].tolist() == [[b"2.000000:0"]]
        assert list(one) == ["score"]
        assert model.predict(x=2.0)["score"].tolist() == [[2.0, -2.0, 0.5]]


def test_an_input_of_such_a_name_is_given_in_inputs() -> None:
    """`parameters` may be an input; a call that names it as an argument is refused with the way out."""
    model = FakeModel({"parameters": ("FP32", [1])}, {"y": ("FP32", [1])}, lambda inputs: {"y": inputs["parameters"]})
    with Client(transport=MemoryTransport({"m": model})) as client:
        assert client.model("m").predict(inputs={"parameters": 2.0})["y"].tolist() == [[2.0]]
        with pytest.raises(InvalidInput, match=r'pass inputs=\{"parameters"'):
            client.model("m").predict(parameters={"parameters": 2.0})
