"""The client with servers of the Open Inference Protocol that are no Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.client.oip_servers import kserve, mlserver
from tritonkit.client import Adaptive, AsyncClient, Cache, Client
from tritonkit.errors import InvalidInput, ModelNotFound, Unsupported

ARRAYS = [
    np.array([[1.5, -2.0], [3.0, 4.0]], np.float32),
    np.array([1, -2], np.int64),
    np.array([[True], [False]]),
    np.array([255], np.uint8),
    np.array([-1], np.int8),
    np.array([1.5], np.float16),
    np.array(2.5),
    np.array([b"", b"\xff\x00", "é".encode()], object),
    np.zeros((2, 0), np.int32),
]


@pytest.fixture(scope="module")
def declaring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLServer, whose metadata names inputs: KServe's own server names none."""
    with mlserver(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def typing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """KServe's own server, one of whose models answers in typed fields."""
    with kserve(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(
    params=[
        pytest.param("declaring", marks=pytest.mark.needs("mlserver"), id="mlserver"),
        pytest.param("typing", marks=pytest.mark.needs("kserve"), id="kserve"),
    ]
)
def server(request: pytest.FixtureRequest) -> str:
    """The gRPC address of each of them."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.mark.needs("mlserver")
def test_metadata_says_names_types_and_shapes(declaring: str) -> None:
    """Values are checked against them; no axis is known to be a batch's."""
    with Client(declaring) as client:
        model = client.model("declared")
        signature = model.signature
        assert (signature.max_batch_size, signature.configured) == (0, False)
        assert signature.inputs["x"].dims == (-1, 2)
        reply = model.predict(x=[[1, 2], [3, 4]])
        np.testing.assert_array_equal(reply["x"], np.array([[1, 2], [3, 4]], np.float32))
        assert reply.batch_size == 1
        with pytest.raises(InvalidInput, match=r"wanted: shape \[any, 2\]"):
            model.predict(x=[1, 2])
        with pytest.raises(InvalidInput, match="no such input"):
            model.predict(y=[[1, 2]])
        with pytest.raises(InvalidInput, match="no such output"):
            model.predict(x=[[1, 2]], outputs=["y"])


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
@pytest.mark.parametrize("wire", ["http2", "grpcio"])
def test_a_model_that_declares_nothing_takes_arrays(server: str, array: Any, wire: Any) -> None:
    """An array's dtype is the datatype that travels; raw or typed, the answer is the same array."""
    with Client(server, wire=wire) as client:
        answer = client.model("bare").predict(x=array)["x"]
    np.testing.assert_array_equal(answer, array)
    assert answer.dtype == array.dtype
    assert answer.shape == array.shape


@pytest.mark.needs("kserve")
@pytest.mark.parametrize("array", [*ARRAYS[:5], ARRAYS[-1], np.array([b"", b"text"], object)])
def test_answers_in_typed_fields_are_read(typing: str, array: Any) -> None:
    """Numbers that a server sends in protobuf's fields instead of raw bytes make the same array."""
    with Client(typing) as client:
        answer = client.model("declared").predict(x=array)["x"]
    np.testing.assert_array_equal(answer, array)
    assert (answer.dtype, answer.shape) == (array.dtype, array.shape)


def test_many_inputs_and_items(server: str) -> None:
    """Several inputs of several kinds, one call after the other, and `predict_many`."""
    with Client(server) as client:
        model = client.model("bare")
        reply = model.predict(x=np.arange(3), text=["a", b"\xff"])
        assert reply["x"].tolist() == [0, 1, 2]
        assert reply["text"].tolist() == [b"a", b"\xff"]
        items = [{"x": np.arange(2)}, {"x": np.arange(3.0)}]
        assert [len(reply["x"]) for reply in model.predict_many(items)] == [2, 3]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "no inputs"),
        ({"x": [1.0, 2.0]}, "a list, which has no datatype"),
        ({"x": np.array([1j])}, "a ndarray, which has no datatype"),
    ],
)
def test_what_has_no_datatype_is_refused(server: str, inputs: dict[str, Any], message: str) -> None:
    """Python's numbers have no datatype of their own, and the server declares none."""
    with Client(server) as client, pytest.raises(InvalidInput, match=message):
        client.model("bare").predict(inputs=inputs)


def test_tasks_call_too(server: str) -> None:
    """The asynchronous client does the same."""

    async def story() -> Any:
        async with AsyncClient(server) as client:
            model = await client.model("bare")
            return (await model.predict(x=np.arange(3.0)))["x"].tolist()

    assert asyncio.run(story()) == [0.0, 1.0, 2.0]


def test_an_unknown_model_is_said_to_be_that(server: str) -> None:
    """The error is the same as with Triton, whatever else the server lacks."""
    with Client(server) as client:
        assert client.is_ready("bare")
        with pytest.raises(ModelNotFound):
            client.model("nothing")


def stream(client: Client) -> None:
    """Open a stream."""
    with client.model("bare").stream(x=np.arange(3)) as replies:
        next(replies)


def sequence(client: Client) -> None:
    """Call within a sequence."""
    with client.model("bare").sequence() as calls:
        calls.predict(x=np.arange(3))


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (stream, "ModelConfig"),
        (sequence, "ModelConfig"),
        (lambda client: client.statistics("bare"), "Triton has all"),
        (lambda client: client.config("bare"), "Triton has all"),
    ],
    ids=["stream", "sequence", "statistics", "config"],
)
def test_what_needs_an_extension_says_so(server: str, use: Callable[[Client], object], expected: str) -> None:
    """A typed error with what is wanted, and the client goes on."""
    with Client(server) as client:
        with pytest.raises(Unsupported) as caught:
            use(client)
        assert expected in caught.value.wanted
        assert client.model("bare").predict(x=np.arange(3))["x"].tolist() == [0, 1, 2]


def test_batching_needs_the_configuration(server: str) -> None:
    """Nothing tells which axis is a batch's: a client that shall join items says that it cannot."""
    with Client(server, batching=Adaptive()) as client, pytest.raises(Unsupported) as caught:
        client.model("bare")
    assert "batching" in caught.value.found
    assert "without batching=" in caught.value.todo


def test_a_server_without_regions_gets_the_tensors_in_messages(server: str) -> None:
    """Shared memory is Triton's: the client does without, and a cache works as ever."""
    data = np.arange(100_000, dtype=np.float32)
    with Client(server, shared_memory=True, cache=Cache()) as client:
        model = client.model("bare")
        for origin in ("server", "l1"):
            reply = model.predict(x=data)
            np.testing.assert_array_equal(reply["x"], data)
            assert reply.origin == origin


@pytest.mark.needs("mlserver")
def test_the_repository_of_mlserver_is_listed(declaring: str) -> None:
    """It writes a state in another way."""
    with Client(declaring) as client:
        assert [(model.name, model.ready) for model in client.models()] == [("bare", True), ("declared", True)]
        assert client.server_metadata().name == "mlserver"
