"""The REST proxy's reading of a request's JSON before Triton reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hostile.rest_proxy import Proxy, Upstream, open_proxy, upstream_in
from tritonkit.serve.core.rest import RestLimits

TENSOR: dict[str, Any] = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
HEADER = "Inference-Header-Content-Length"
DEPTH = RestLimits.max_json_depth


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The socket between Envoy and the stand-in."""
    return tmp_path_factory.mktemp("rest")


@pytest.fixture(scope="module")
def stand_in(folder: Path) -> Iterator[Upstream]:
    """The stand-in for Triton."""
    with upstream_in(folder) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(project: Path, folder: Path, stand_in: Upstream) -> Iterator[Proxy]:
    """A proxy as it is by default."""
    with open_proxy(project, folder) as opened:
        yield opened


@pytest.fixture
def upstream(stand_in: Upstream) -> Upstream:
    """The stand-in as if it were new."""
    stand_in.reset()
    return stand_in


def with_tensor(**members: object) -> dict[str, Any]:
    """A request with one tensor, other in these members; None takes one away."""
    tensor = {name: value for name, value in {**TENSOR, **members}.items() if value is not None}
    return {"inputs": [tensor]}


def with_parameters(**parameters: object) -> dict[str, Any]:
    """A right request with these parameters."""
    return {"inputs": [TENSOR], "parameters": parameters}


@pytest.mark.parametrize(
    "request_",
    [
        {"inputs": []},
        {"inputs": [TENSOR], "outputs": [], "id": "a", "parameters": {}},
        {"inputs": [TENSOR], "outputs": [{"name": "y", "parameters": {"classification": 3}}]},
        with_parameters(sequence_id=7, sequence_start=True, sequence_end=False, priority=1, timeout=9),
        with_parameters(sequence_id="s", binary_data_output=True, mine="x", other=1.5),
        with_tensor(data=[[1, -2.5e-3]]),
        with_tensor(data=[float("nan"), float("-inf")]),
        with_tensor(shape=[0], data=[]),
        with_tensor(shape=[], data=[1]),
        with_tensor(datatype="BOOL", data=[True, False]),
        with_tensor(datatype="BYTES", data=["[[[[", 'a\\"]\u2028\u0000\ud83d\ude00']),
        with_tensor(datatype="INT8", data=[-128, 127]),
        with_tensor(datatype="UINT8", data=[0, 255]),
        with_tensor(datatype="INT64", data=[-(1 << 63), (1 << 63) - 1]),
        with_tensor(datatype="UINT64", data=[0, (1 << 64) - 1]),
        with_tensor(datatype="FP16", data=None, parameters={"binary_data_size": 4}),
        {"inputs": [TENSOR | {"name": str(number)} for number in range(256)]},
    ],
)
def test_right_requests_pass(proxy: Proxy, upstream: Upstream, request_: object) -> None:
    """Everything that the protocol has reaches Triton unchanged."""
    body = json.dumps(request_).encode()
    assert proxy.infer(body).status == 200
    assert upstream.seen[0].body == body


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ([], "the request: found a list, wanted an object"),
        ("x", "the request: found a string, wanted an object"),
        ({}, "the request: found no inputs"),
        ({"inputs": {}}, "inputs: found an object, wanted a list"),
        ({"inputs": [1]}, "inputs[0]: found something else, wanted an object"),
        ({"inputs": [TENSOR, []]}, "inputs[1]: found a list, wanted an object"),
        ({"inputs": [TENSOR] * 257}, "inputs: found more items, wanted 256 at most"),
        (with_tensor(name=None), "inputs[0]: found no name"),
        (with_tensor(name=1), "inputs[0].name: found 1, wanted a string"),
        (with_tensor(name=[[]]), "inputs[0].name: found a list, wanted a string"),
        (with_tensor(shape=None), "inputs[0]: found no shape"),
        (with_tensor(shape="x"), "inputs[0].shape: found a string, wanted a list"),
        (with_tensor(shape=[1, "2"]), "inputs[0].shape[1]: found a string, wanted a whole number from 0"),
        (with_tensor(shape=[-1, 2]), "inputs[0].shape[0]: found -1, wanted a whole number from 0"),
        (with_tensor(shape=[2.0]), "inputs[0].shape[0]: found a fraction"),
        (with_tensor(shape=[[2]]), "inputs[0].shape[0]: found a list"),
        (with_tensor(shape=[1 << 64]), "inputs[0].shape[0]: found"),
        (with_tensor(shape=[1 << 32, 1 << 32]), "inputs[0].shape: found 1.84e+19 elements"),
        (with_tensor(shape=[1] * 40), "inputs[0].shape: found more items, wanted 32 at most"),
        (with_tensor(datatype=None), "inputs[0]: found no datatype"),
        (with_tensor(datatype=32), "inputs[0].datatype: found 32, wanted a string"),
        (with_tensor(datatype="STRING"), "inputs[0].datatype: found none that Triton knows"),
        (with_tensor(data=None, shape=[2], datatype="fp32"), "inputs[0].datatype: found none"),
        (with_tensor(data=1), "inputs[0].data: found something else, wanted a list"),
        (with_tensor(data={}), "inputs[0].data: found an object, wanted a list"),
        (with_tensor(data=[1]), "inputs[0].data: found 1 value, wanted 2, as the shape says"),
        (with_tensor(data=[1, 2, 3]), "inputs[0].data: found 3 values, wanted 2"),
        (with_tensor(data=["1", "2"]), "inputs[0].data: found a string, wanted for FP32 numbers"),
        (with_tensor(data=[1, None]), "inputs[0].data: found null"),
        (with_tensor(data=[1, {}]), "inputs[0].data: found an object"),
        (with_tensor(datatype="INT8", data=[1, 128]), "inputs[0].data: found a number out of range"),
        (with_tensor(datatype="UINT32", data=[1, -1]), "inputs[0].data: found a number out of range"),
        (with_tensor(datatype="INT32", data=[1, 1.0]), "inputs[0].data: found a fraction"),
        (with_tensor(datatype="BOOL", data=[1, 0]), "inputs[0].data: found a whole number"),
        (with_tensor(datatype="BYTES"), "inputs[0].data: found a whole number, wanted for BYTES strings"),
        (with_tensor(datatype="FP16"), "wanted for FP16 no JSON: binary data"),
        (with_tensor(parameters=[]), "inputs[0].parameters: found a list, wanted an object"),
        (with_tensor(parameters={"binary_data_size": -1}), "binary_data_size: found -1, wanted a whole"),
        (with_tensor(parameters={"shared_memory_region": "r"}), "found a request by shared memory"),
        (with_tensor(parameters={"shared_memory_offset": 0}), "found a request by shared memory"),
        ({"inputs": [], "outputs": {}}, "outputs: found an object, wanted a list"),
        ({"inputs": [], "outputs": [{}]}, "outputs[0]: found no name"),
        ({"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": "3"}}]}, "classification"),
        ({"inputs": [], "outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]}, "shared"),
        ({"inputs": [], "id": 1}, "id: found 1, wanted a string"),
        ({"inputs": [], "parameters": None}, "parameters: found something else, wanted an object"),
        (with_parameters(sequence_id=1.5), "parameters.sequence_id: found a fraction"),
        (with_parameters(sequence_start=1), "parameters.sequence_start: found 1, wanted true or false"),
        (with_parameters(priority="high"), "parameters.priority: found a string"),
        (with_parameters(timeout=-1), "parameters.timeout: found -1"),
        ({"inputs": [], **{str(number): 1 for number in range(300)}}, "found more members"),
    ],
)
def test_what_triton_would_call_its_own_fault_is_named(
    proxy: Proxy, upstream: Upstream, request_: object, words: str
) -> None:
    """A wrong type, number or name is 400 with its place, what was found and what was wanted."""
    answer = proxy.infer(request_)
    assert answer.status == 400
    assert words in answer.error
    assert not upstream.seen


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the request: found nothing, wanted an object"),
        (b"{", "byte 2: found the end of it, wanted the name of a member"),
        (b'{"inputs":[]', "wanted a comma or }"),
        (b'{"inputs":[],}', "wanted the name of a member"),
        (b'{"inputs":[]}x', "byte 14: found something else, wanted nothing more"),
        (b'{"inputs":[]}\0', "wanted nothing more"),
        (b'{"inputs":[],"inputs":[]}', "the request: found a member twice"),
        (b'{"in\\u0070uts":[]}', "an escape in the name of a member"),
        (b'{"inputs" []}', "wanted a colon"),
        (b"{'inputs':[]}", "wanted the name of a member"),
        (b'\xef\xbb\xbf{"inputs":[]}', "wanted an object"),
        (b'{"inputs":[],"a":01}', "wanted a comma"),
        (b'{"inputs":[],"a":1.}', "wanted a value of JSON"),
        (b'{"inputs":[],"a":-}', "wanted a value of JSON"),
        (b'{"inputs":[],"a":"\n"}', "wanted the rest of a string"),
        (b'{"inputs":[],"a":"\\x"}', "wanted an escape of JSON"),
        (b'{"inputs":[],"a":"\\ud800"}', "both halves of a surrogate pair"),
        (b'{"inputs":[],"a":[1,}', "wanted a value of JSON"),
        (b'{"inputs":[],"a":[1}', "a comma or ]"),
    ],
)
def test_what_is_no_json_is_refused(proxy: Proxy, upstream: Upstream, body: bytes, words: str) -> None:
    """With the byte at which it stops to be."""
    answer = proxy.infer(body)
    assert answer.status == 400
    assert words in answer.error
    assert not upstream.seen


@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
def test_deep_brackets_are_refused_wherever_they_are(proxy: Proxy, upstream: Upstream, bracket: bytes) -> None:
    """150 kB of brackets, which end Triton's front end, in each place that holds any value."""
    deep = bracket * (150_000 // len(bracket))
    for before, verb in (
        (b"", "infer"),
        (b'{"inputs":[', "infer"),
        (b'{"inputs":[{"data":[', "infer"),
        (b'{"inputs":[{"parameters":{"a":', "infer"),
        (b'{"outputs":[{"a":', "infer"),
        (b'{"parameters":{"a":', "infer"),
        (b'{"a":', "infer"),
        (b'{"a":', "generate"),
        (b'{"a":', "generate_stream"),
    ):
        assert proxy.infer(before + deep, verb=verb).status == 400
    body = b'{"inputs":[]}'
    assert proxy.infer(body + deep, f"{HEADER}: {len(body)}").status == 200
    assert proxy.infer(deep + body, f"{HEADER}: {len(deep)}").status == 400
    assert len(upstream.seen) == 1


def test_the_depth_that_may_be(proxy: Proxy, upstream: Upstream) -> None:
    """At the bound it passes, one deeper not; brackets in strings are none."""

    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b'"[[{"' + b"]" * (levels - 1) + b"}"

    assert proxy.infer(nested(DEPTH), verb="generate").status == 200
    assert proxy.infer(nested(DEPTH + 1), verb="generate").status == 400
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    "value", ["-1", "100", "18446744073709551616", "1e1", "0x1", "", "1 2", "1,1", "13 ", "\t5", "+5"]
)
def test_the_length_of_the_json_is_read_strictly(proxy: Proxy, upstream: Upstream, value: str) -> None:
    """A length that is none, or longer than the body, is refused, or read as the JSON that it cuts off."""
    answer = proxy.infer(b'{"inputs":[]}', f"{HEADER}: {value}")
    if value.strip() == "13":
        assert answer.status == 200
    else:
        assert answer.status == 400
        assert not upstream.seen


def test_two_lengths_of_the_json_are_refused(proxy: Proxy, upstream: Upstream) -> None:
    """Triton would take the other one."""
    answer = proxy.infer(b'{"inputs":[]}', f"{HEADER}: 13", f"{HEADER}: 13")
    assert answer.status == 400
    assert not upstream.seen


@pytest.mark.parametrize("options", [f"close, {HEADER}", f"keep-alive, {HEADER.lower()}, TE"])
def test_the_length_cannot_be_taken_away_on_the_way(proxy: Proxy, upstream: Upstream, options: str) -> None:
    """Named in Connection, the header either counts for both or for none: brackets stay unread by Triton."""
    body = b'{"inputs":[]}'
    answer = proxy.infer(body + b"[" * 150_000, f"{HEADER}: {len(body)}", f"Connection: {options}")
    assert answer.status == 400 or upstream.seen[0].header(HEADER.lower()) == str(len(body))


def test_generate_has_no_binary_part(proxy: Proxy, upstream: Upstream) -> None:
    """Triton reads all of such a body as JSON, so all of it is read here."""
    assert proxy.infer(b'{"a":1}[[', f"{HEADER}: 7", verb="generate").status == 400
    assert proxy.infer(b'{"a":1}', f"{HEADER}: 2", verb="generate").status == 200
    assert upstream.seen[0].header(HEADER.lower()) is None


def test_raw_data_is_not_read(proxy: Proxy, upstream: Upstream) -> None:
    """Binary tensors of any bytes, or a whole body of them, pass; long JSON does not."""
    body = b'{"inputs":[]}'
    raw = b"[" * (5 << 20)
    assert proxy.infer(body + raw, f"{HEADER}: {len(body)}").status == 200
    assert proxy.infer(raw, f"{HEADER}: 0").status == 200
    long = proxy.infer(body + b" " * (5 << 20))
    assert long.status == 413
    assert "wanted 4194304 at most; send tensors as binary data" in long.error
    assert [len(one.body) for one in upstream.seen] == [len(body) + len(raw), len(raw)]


def test_shared_memory_can_be_allowed(project: Path, tmp_path: Path) -> None:
    """If the server has it on, requests may name regions, correctly."""
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    with upstream_in(tmp_path), open_proxy(project, tmp_path, shared_memory=True) as proxy:
        assert proxy.infer(with_tensor(data=None, parameters=region)).status == 200
        wrong = proxy.infer(with_tensor(data=None, parameters={"shared_memory_byte_size": -8}))
        assert (wrong.status, "found -8" in wrong.error) == (400, True)


WORDS = st.text('[]{}:,"\\ 01-.eEu+\n\tatrufalsn\u00e9\0\x1f', max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def is_json(text: str) -> bool:
    """Python's reader, made as strict as the proxy: whole surrogate pairs, no repeated name."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=members)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=4),
    places=st.lists(st.tuples(st.integers(0, 400), WORDS, st.integers(0, 2)), max_size=2),
)
@example(value={"a": 1}, places=[(5, "", 1)])
@example(value={"a": None}, places=[(2, '\\"', 0)])
def test_the_reader_agrees_with_pythons(
    proxy: Proxy, upstream: Upstream, value: dict[str, Any], places: list[tuple[int, str, int]]
) -> None:
    """JSON with any bytes put in or taken out passes exactly where Python calls it an object of JSON."""
    text = json.dumps(value)
    for place, put, taken in places:
        place = min(place, len(text))
        text = text[:place] + put + text[place + taken :]
    try:
        pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
        names = [name for name, _ in pairs] if isinstance(pairs, list) else []
    except (ValueError, TypeError):
        names = []
    # What the proxy is stricter in, at the top: names once, written out, and two of Triton's own.
    written_out = all(f'"{name}"' in text for name in names)
    if len(set(names)) < len(names) or {"id", "parameters"} & set(names) or not written_out:
        return
    assert (proxy.infer(text.encode(), verb="generate").status == 200) == is_json(text)
