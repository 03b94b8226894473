"""The transports shipped for users' own tests: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tritonkit.client.testing.memory import AsyncMemoryTransport, FakeModel, MemoryTransport
from tritonkit.client.wire.answer import Answer, decode, stream_response
from tritonkit.client.wire.messages import message, parse
from tritonkit.client.wire.request import Prepared
from tritonkit.client.wire.signature import ModelSignature, TensorSpec, signature_from
from tritonkit.errors import (
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
    TritonkitError,
    UsageError,
)

FINAL = "triton_final_response"


def model(function: Any, datatype: str = "FP32") -> FakeModel:
    """One input, one output, both two numbers."""
    return FakeModel(inputs={"x": (datatype, [2])}, outputs={"y": (datatype, [2])}, function=function)


def double(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Twice the input."""
    return {"y": inputs["x"] * 2}


def count(inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The input, then one more each time, up to its second number."""
    start, end = inputs["x"][0]
    for value in range(int(start), int(end)):
        yield {"y": [value, end]}


def request(value: Any = (1.0, 2.0), datatype: str = "FP32", **options: Any) -> list[Any]:
    """A request to the model m."""
    spec = TensorSpec("x", datatype, (2,), batched=True)
    signature = ModelSignature("m", ("1",), 8, {"x": spec}, {})
    dtype = {"FP16": "f2", "INT8": "i1", "UINT64": "u8"}.get(datatype, "f4")
    return Prepared(signature, "", None).encode({"x": np.array([value], dtype)}, **options)


def call(fake: FakeModel, body: list[Any] | None = None) -> Answer:
    """Its answer."""
    transport = MemoryTransport({"m": fake})
    return decode(transport.send("ModelInfer", body or request(), 60))


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "INT8", "UINT64"])
def test_functions_see_the_declared_type(datatype: str) -> None:
    """The function gets what a model behind the wire would get, batch axis first."""
    arrays: list[Any] = []

    def remember(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        arrays.append(inputs["x"])
        return {"y": inputs["x"]}

    answer = call(model(remember, datatype), request([1, 2], datatype))
    assert answer.outputs["y"].tolist() == [[1, 2]]
    assert arrays[0].shape == (1, 2)
    assert arrays[0].dtype == np.dtype({"FP16": "f2", "INT8": "i1", "UINT64": "u8"}.get(datatype, "f4"))


def test_an_answer_says_who_made_it() -> None:
    """Model, version, and the id of the request."""
    answer = call(model(double), request(request_id="7"))
    assert (answer.model, answer.version, answer.id) == ("m", "1", "7")


@pytest.mark.parametrize("error", [ServerUnavailable, Overloaded, DeadlineExceeded, ModelNotFound])
def test_errors_of_ours_pass_through(error: type[TritonkitError]) -> None:
    """A test can have the server fail in any way a real one can."""

    def down(inputs: Any) -> Any:
        raise error("memory", found="switched off")

    with pytest.raises(error, match="switched off"):
        call(model(down))


def test_other_errors_are_the_models() -> None:
    """A bug in the function is what a bug in a model is: an error of inference."""

    def broken(inputs: Any) -> Any:
        raise ZeroDivisionError("oh")

    with pytest.raises(InferenceError, match="ZeroDivisionError: oh"):
        call(model(broken))


@pytest.mark.parametrize(
    ("gives", "error"),
    [({}, InferenceError), ({"y": [1.0, 2.0, 3.0]}, InvalidInput), ({"y": ["a", "b"]}, InvalidInput)],
)
def test_a_function_that_breaks_its_own_promise(gives: Any, error: type[Exception]) -> None:
    """An output that is missing or does not fit what the fake declares is told, not passed on."""
    with pytest.raises(error, match="output y"):
        call(model(lambda inputs: gives))


def test_a_wrong_datatype_is_refused_when_the_model_is_asked_for() -> None:
    """A type Triton does not have is an error, not a tensor of something."""
    transport = MemoryTransport({"m": model(double, "FP31")})
    with pytest.raises(ValueError, match="TYPE_FP31"):
        transport.send("ModelConfig", [message("ModelConfig", name="m")], 60)


def test_questions_are_answered() -> None:
    """A client's questions before and after inference are answered as by a server."""
    transport = MemoryTransport({"m": model(double), "n": model(count)})

    def ask(method: Any, **fields: Any) -> Any:
        return parse(method, transport.send(method, [message(method, **fields)], 60))

    assert ask("ServerLive").live
    assert ask("ServerReady").ready
    assert ask("ServerMetadata").name == "memory"
    assert ask("ModelReady", name="m").ready
    assert not ask("ModelReady", name="m", version="2").ready
    assert [entry.name for entry in ask("RepositoryIndex").models] == ["m", "n"]
    config = ask("ModelConfig", name="m").config
    signature = signature_from(ask("ModelMetadata", name="m"), config)
    assert signature.inputs["x"] == TensorSpec("x", "FP32", (2,), batched=True)
    assert not config.model_transaction_policy.decoupled
    assert ask("ModelConfig", name="n").config.model_transaction_policy.decoupled
    transport.send("ModelInfer", request(), 60)
    assert ask("ModelStatistics", name="m").model_stats[0].inference_count == 1
    ask("RepositoryModelLoad", model_name="m")
    with pytest.raises(ModelNotFound, match="one of m, n"):
        ask("ModelMetadata", name="o")
    with pytest.raises(InferenceError, match="SystemSharedMemoryRegister"):
        ask("SystemSharedMemoryRegister", name="r")


@pytest.mark.parametrize("body", [b"\xff", message("ModelInfer", model_name="m", raw_input_contents=[b"1"])])
def test_a_request_that_cannot_be_read_is_an_error(body: bytes) -> None:
    """Bytes that are no message, or tensors that contradict themselves, as a server would say."""
    transport = MemoryTransport({"m": model(double)})
    with pytest.raises(InferenceError, match="cannot be read"):
        transport.send("ModelInfer", [body], 60)
    with pytest.raises(InferenceError, match="cannot be read"):
        transport.begin("ModelInfer", [body], 60).result()
    transport.close()


def test_a_slow_function_is_late() -> None:
    """The time allowed is kept to, at the latest when the function returns."""
    fake = model(lambda inputs: threading.Event().wait(0.02) or double(inputs))
    with pytest.raises(DeadlineExceeded, match=r"0\.001 s"):
        MemoryTransport({"m": fake}).send("ModelInfer", request(), 0.001)


def test_a_call_that_was_begun_runs_meanwhile() -> None:
    """Two calls that wait for each other both get through."""
    both = threading.Barrier(2)

    def meet(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        both.wait(20)
        return double(inputs)

    transport = MemoryTransport({"m": model(meet)})
    calls = [transport.begin("ModelInfer", request(), 60) for _ in range(2)]
    assert [decode(begun.result()).outputs["y"].tolist() for begun in calls] == [[[2, 4]]] * 2
    transport.close()


def test_a_call_that_was_begun_can_be_given_up() -> None:
    """Cancelled or late, `result` says so without waiting for the function."""
    stuck = threading.Event()
    transport = MemoryTransport({"m": model(lambda inputs: stuck.wait(20) and double(inputs))})
    try:
        begun = transport.begin("ModelInfer", request(), 60)
        assert not begun.wait(0.001)
        begun.cancel()
        begun.cancel()
        assert begun.wait(60)
        with pytest.raises(InferenceError, match="cancelled"):
            begun.result()
        with pytest.raises(DeadlineExceeded):
            transport.begin("ModelInfer", request(), 0.01).result()
    finally:
        stuck.set()
        transport.close()


def test_a_closed_transport_refuses() -> None:
    """Every way of calling; closing twice is closing once."""
    transport = MemoryTransport({"m": model(double)})
    transport.close()
    transport.close()
    for use in (
        lambda: transport.send("ModelInfer", request(), 60),
        lambda: transport.begin("ModelInfer", request(), 60),
        transport.stream,
    ):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_a_stream_answers_with_everything_a_function_yields() -> None:
    """Answers come one by one, with a last one without outputs if the request wants it."""
    stream = MemoryTransport({"m": model(count)}).stream()
    stream.write(request((1, 3), parameters={"triton_enable_empty_final_response": True}))
    stream.write(request((5, 6)))
    stream.end()
    answers = []
    while (body := stream.read(20)) is not None:
        error, answer = stream_response(body)
        assert not error
        assert answer is not None
        answers.append((answer.parameters[FINAL], [y[0, 0] for y in answer.outputs.values()]))
    assert answers == [(False, [1]), (False, [2]), (True, []), (False, [5])]
    assert stream.read(20) is None


def test_a_plain_model_answers_a_stream_once() -> None:
    """The one answer is marked as the last, as in Triton."""
    stream = MemoryTransport({"m": model(double)}).stream()
    stream.write(request())
    answer = stream_response(stream.read(20) or b"")[1]
    assert answer is not None
    assert answer.parameters == {FINAL: True}


def test_a_failed_request_does_not_end_its_stream() -> None:
    """The error is a message that holds the request's id; the next request is answered."""

    def fails(inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        yield {"y": inputs["x"]}
        if inputs["x"][0, 0] == 0:
            raise ValueError("zero")

    stream = MemoryTransport({"m": model(fails)}).stream()
    stream.write(request((0, 0), request_id="a"))
    stream.write(request((1, 1), request_id="b"))
    messages = [stream_response(stream.read(20) or b"") for _ in range(3)]
    assert ["zero" in error for error, _ in messages] == [False, True, False]
    assert [answer.id for _, answer in messages if answer] == ["a", "a", "b"]


def test_a_stream_breaks_as_its_connection_would() -> None:
    """A function can have the server go away in the middle of a stream."""

    def dies(inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        yield {"y": inputs["x"]}
        raise ServerUnavailable("memory", found="switched off")

    stream = MemoryTransport({"m": model(dies)}).stream()
    stream.write(request())
    stream.read(20)
    with pytest.raises(ServerUnavailable, match="switched off"):
        stream.read(20)


def test_cancelling_a_stream_reaches_the_function() -> None:
    """A generator ends at its `yield`, as a model does that looks whether anybody still listens."""
    ended = threading.Event()

    def endless(inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        try:
            while True:
                yield {"y": inputs["x"]}
        finally:
            ended.set()

    stream = MemoryTransport({"m": model(endless)}).stream()
    stream.write(request())
    stream.read(20)
    stream.cancel()
    assert ended.is_set()
    with pytest.raises(InferenceError, match="cancelled"):
        stream.read(20)
    with pytest.raises(InferenceError, match="cancelled"):
        stream.write(request())


def test_cancelling_wakes_a_reader() -> None:
    """A thread that waits for the next message is not left waiting."""
    stream = MemoryTransport({"m": model(count)}).stream()
    timer = threading.Timer(0.05, stream.cancel)
    timer.start()
    with pytest.raises(InferenceError, match="cancelled"):
        stream.read(20)
    timer.join()


def test_a_reader_waits_only_so_long() -> None:
    """Nothing written, or a function that is too slow: what came late is read next."""
    release = threading.Event()

    def slow(inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        release.wait(0.02)
        yield {"y": inputs["x"]}

    stream = MemoryTransport({"m": model(slow)}).stream()
    with pytest.raises(DeadlineExceeded):
        stream.read(0.001)
    stream.write(request())
    with pytest.raises(DeadlineExceeded):
        stream.read(0.001)
    assert stream_response(stream.read(20) or b"")[1]


def test_a_generator_cannot_be_called_without_a_stream() -> None:
    """Decoupled models are refused in a unary call, as by Triton."""
    with pytest.raises(InferenceError, match="decoupled"):
        call(model(count))


def test_tasks_call_at_the_same_time() -> None:
    """Functions run in threads: a loop's tasks do not wait for each other."""
    both = threading.Barrier(2)

    def meet(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        both.wait(20)
        return double(inputs)

    async def calls() -> list[memoryview]:
        transport = AsyncMemoryTransport({"m": model(meet)})
        assert transport.address == "memory"
        try:
            return await asyncio.gather(*(transport.send("ModelInfer", request(), 60) for _ in range(2)))
        finally:
            await transport.close()

    assert [decode(body).outputs["y"].tolist() for body in asyncio.run(calls())] == [[[2, 4]]] * 2


def test_a_task_waits_only_so_long() -> None:
    """A slow function ends in our error, in time; an error of its own stays what it is."""
    stuck = threading.Event()

    def slow(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if inputs["x"][0, 0] == 0:
            raise TimeoutError("of the function")
        stuck.wait(20)
        return double(inputs)

    async def late() -> None:
        transport = AsyncMemoryTransport({"m": model(slow)})
        with pytest.raises(DeadlineExceeded):
            await transport.send("ModelInfer", request(), 0.01)
        with pytest.raises(InferenceError, match="of the function"):
            await transport.send("ModelInfer", request((0, 0)), 60)
        stuck.set()
        await transport.close()
        with pytest.raises(UsageError, match="closed"):
            await transport.send("ModelInfer", request(), 60)

    asyncio.run(late())


def test_tasks_read_streams() -> None:
    """The same stream, for tasks: written, read to its end, cancelled."""

    async def read() -> list[Any]:
        transport = AsyncMemoryTransport({"m": model(count)})
        stream = await transport.stream()
        await stream.write(request((1, 3)))
        with pytest.raises(DeadlineExceeded):
            await (await transport.stream()).read(0.01)
        await stream.end()
        values = []
        while (body := await stream.read(20)) is not None:
            answer = stream_response(body)[1]
            assert answer is not None
            values.append(answer.outputs["y"][0, 0])
        await stream.cancel()
        with pytest.raises(InferenceError, match="cancelled"):
            await stream.read()
        await transport.close()
        return values

    assert asyncio.run(read()) == [1, 2]


def test_a_cancelled_reader_loses_no_message() -> None:
    """A task may stop waiting for the next message and wait again later."""

    async def read() -> Any:
        transport = AsyncMemoryTransport({"m": model(count)})
        stream = await transport.stream()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.read(), 0.02)
        await stream.write(request((1, 2)))
        body = await stream.read(20)
        await stream.cancel()
        await transport.close()
        return stream_response(body or b"")[1]

    assert asyncio.run(read()).outputs["y"][0, 0] == 1
