"""The four steps and both kinds of the onnxruntime backend, inside a real Triton."""

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tritonclient.utils import InferenceServerException

from tests.parts import SERVER
from tests.repository.export.test_external_data import external
from tests.server.onnx_models import (
    BATCH,
    COMPLETE,
    DECODE_IO,
    MERGING,
    POOL_IO,
    TOKENIZE_IO,
    TOP_K_IO,
    identity,
    onnx_model,
    step,
    tensors,
    through,
    write_model,
)
from tests.server.raw import Client, Running, ask, ask_together, executions, items, start_triton
from tests.server.sharing import SharedBackends


def write_tokenizer(path: Path) -> None:
    """Words between [CLS] 1 and [SEP] 2; padding is 3."""
    words = {word: i for i, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "one", "two"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=next(iter(words))))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(path))


def write_steps(root: Path) -> None:
    """The four steps, and decode_image without a batch axis and as bytes."""
    pixels = {"height": "2", "width": "3", "channels": "1", "resample": "nearest", "scale": "1"}
    step(root / "decode_image", "decode_image", DECODE_IO, **pixels)
    room = {"max_decoded_bytes": "12", "max_batch_decoded_bytes": "20"}
    step(root / "decode_little", "decode_image", DECODE_IO, **pixels, **room)
    step(root / "decode_full", "decode_image", DECODE_IO, COMPLETE, **pixels, **room)
    unbatched = step(root / "decode_one", "decode_image", DECODE_IO, "", **pixels).parent
    config = unbatched / "config.pbtxt"
    config.write_text(config.read_text().replace(f"size: {BATCH}", "size: 0"))
    bytes_io = DECODE_IO.replace("TYPE_FP32", "TYPE_UINT8")
    as_bytes = {**pixels, "scale": str(1 / 255), "dtype": "UINT8"}
    step(root / "decode_bytes", "decode_image", bytes_io, **as_bytes)
    version = step(root / "top_k", "top_k", TOP_K_IO, k="2", labels="labels.txt")
    (version.parent / "labels.txt").write_text("a\nb\nc\n")
    files = {"tokenizer": "tokenizer.json"}
    lengths = {"max_length": "8", "buckets": "4,6"}
    write_tokenizer(step(root / "tokenize", "tokenize", TOKENIZE_IO, **files, **lengths) / "tokenizer.json")
    step(root / "mean_pool", "mean_pool", POOL_IO, dimension="4")


def write_networks(root: Path) -> None:
    """Networks for the stand-in: a lookup that fails on bad indices, several identities, a sum."""
    size = f"max_batch_size: {BATCH}\n{MERGING}\n"
    onnx_model(
        root / "lookup",
        [
            helper.make_node("Constant", [], ["table"], value_floats=[0.0, 10.0, 20.0, 30.0]),
            helper.make_node("Gather", ["table", "i"], ["y"]),
        ],
        [("i", TensorProto.INT64, ["n", 1])],
        [("y", TensorProto.FLOAT, ["n", 1])],
        size + tensors("input", i="INT64 [1]") + tensors("output", y="FP32 [1]"),
    )
    onnx_model(
        root / "two",
        [helper.make_node("Neg", ["x"], ["minus"]), helper.make_node("Add", ["x", "x"], ["twice"])],
        [("x", TensorProto.FLOAT, ["n", "t"])],
        [("minus", TensorProto.FLOAT, ["n", "t"]), ("twice", TensorProto.FLOAT, ["n", "t"])],
        size + tensors("input", x="FP32 [-1]") + tensors("output", minus="FP32 [-1]", twice="FP32 [-1]"),
    )
    strings = size + through("STRING [1]")
    identity(root / "strings", TensorProto.STRING, ["n", 1], strings)
    identity(root / "half", TensorProto.FLOAT16, ["n", 2], size + through("FP16 [2]"))
    identity(root / "flags", TensorProto.BOOL, ["n", 2], size + through("BOOL [2]"))
    whole = "max_batch_size: 0\n" + through("FP32 [-1, 2]")
    identity(root / "whole", TensorProto.FLOAT, ["n", 2], whole)
    scalar = "max_batch_size: 0\n" + through("FP32 [1]")
    identity(root / "scalar", TensorProto.FLOAT, [], scalar)
    # Weights in other files, next to the network and below it.
    apart = write_model(root / "apart", 'backend: "onnxruntime"\n' + size + through("FP32 [4]"))
    external(apart / "model.onnx", apart, ("m.data", "weights/m.data"))
    # The configuration leaves an axis free that the file fixes.
    fixed = size + through("FP32 [2]")
    identity(root / "fixed", TensorProto.FLOAT, ["n", 2], fixed)
    reshaped = (
        'input { name: "x" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } }'
    )
    identity(root / "reshaped", TensorProto.FLOAT, ["n", 2, 2], size + reshaped)


def write_pipeline(root: Path) -> None:
    """decode_image -> a network of two pixels to three scores -> top_k, as one ensemble."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [6, 3], (np.eye(6, 3) / 10).ravel())
    onnx_model(
        root / "scores",
        [
            helper.make_node("Constant", [], ["w"], value=weights),
            helper.make_node("Flatten", ["pixels"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["logits"]),
        ],
        [("pixels", TensorProto.FLOAT, ["n", 1, 2, 3])],
        [("logits", TensorProto.FLOAT, ["n", 3])],
        f"max_batch_size: {BATCH}\n{MERGING}\n"
        + tensors("input", pixels="FP32 [1, 2, 3]")
        + tensors("output", logits="FP32 [3]"),
    )
    steps = ""
    for model, taken, given in (
        ("decode_image", ["image"], ["pixels"]),
        ("scores", ["pixels"], ["logits"]),
        ("top_k", ["logits"], ["label", "score"]),
    ):
        maps = [f'input_map {{ key: "{name}" value: "{name}" }}' for name in taken]
        maps += [f'output_map {{ key: "{name}" value: "{name}" }}' for name in given]
        steps += f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}\n'
    io_fields = tensors("input", image="STRING [1]") + tensors("output", label="STRING [2]", score="FP32 [2]")
    config = f'platform: "ensemble"\nmax_batch_size: {BATCH}\n{io_fields}\n'
    write_model(root / "pipeline", config + f"ensemble_scheduling {{ {steps} }}")


def write_refused(root: Path) -> None:
    """Models that must not load; the text each is refused with is in REFUSALS."""
    size = f"max_batch_size: {BATCH}\n"
    both = through("FP32 [2]")
    accelerator = 'optimization { execution_accelerators { cpu_execution_accelerator: [{ name: "openvino" }] } }'
    dims: list[Any] = ["n", 2]
    identity(root / "bad_accelerator", TensorProto.FLOAT, dims, size + both + accelerator)
    identity(root / "bad_dtype", TensorProto.DOUBLE, dims, size + both)
    identity(root / "bad_shape", TensorProto.FLOAT, ["n", 3], size + both)
    mode = 'parameters { key: "execution_mode" value { string_value: "7" } }'
    identity(root / "bad_mode", TensorProto.FLOAT, dims, size + both + mode)
    identity(root / "bad_file", TensorProto.FLOAT, dims, size + both)
    file = root / "bad_file" / "1" / "model.onnx"
    file.write_bytes(file.read_bytes()[:-20])
    identity(root / "no_file", TensorProto.FLOAT, dims, size + both)
    (root / "no_file" / "1" / "model.onnx").unlink()
    step(root / "bad_height", "decode_image", DECODE_IO, height="0")
    step(root / "no_labels", "top_k", TOP_K_IO, labels="labels.txt")


REFUSALS = {
    "bad_accelerator": "cpu_execution_accelerator 'openvino' found",
    "bad_dtype": "input 'x': config.pbtxt says FP32, the ONNX file has FP64",
    "bad_shape": "input 'x': config.pbtxt says [-1, 2] (the batch axis and dims), the ONNX",
    "bad_mode": "parameter execution_mode: found 7, wanted 0 or 1",
    "bad_file": "ONNX Runtime cannot load",
    "no_file": "wanted the ONNX model of version 1",
    "bad_height": "parameter height: found 0, wanted at least 1",
    "no_labels": "parameter labels: no file labels.txt",
}


@pytest.fixture(
    scope="module", params=[pytest.param("stand_in_server", id="python"), pytest.param("native_server", id="native")]
)
def triton(request: pytest.FixtureRequest) -> Iterator[Running]:
    """Every model of this file, with networks served by the stand-in and by the native backend."""
    server: SharedBackends = request.getfixturevalue(request.param)
    with server.serving(write_steps, write_networks, write_pipeline, write_refused, plant_compiled) as running:
        yield running


@pytest.fixture(scope="module")
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw Triton client."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


def png(*values: int) -> bytes:
    """A gray 2 x 3 picture of these six values."""
    file = io.BytesIO()
    Image.fromarray(np.array(values, dtype=np.uint8).reshape(2, 3)).save(file, "PNG")
    return file.getvalue()


def plant_compiled(root: Path) -> None:
    """Put a compiled file that Python would run without a look at its source next to a model's."""
    source = root / "top_k" / "1" / "model.py"
    other = source.with_name("other.py")
    other.write_text("raise SystemExit")
    code = (
        "import importlib.util, py_compile, sys; py_compile.compile(sys.argv[1], importlib.util.cache_from_source("
        "sys.argv[2]), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    )
    subprocess.run([SERVER / "bin" / "python3", "-c", code, other, source], check=True)
    other.unlink()


# What must hold for every model: a bad request among eight merged ones -------------------------

SIX = (0, 50, 100, 150, 200, 250)
HIDDEN = np.ones((1, 2, 4), np.float32)
MASK = np.ones((1, 2), np.int64)
CASES: dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray], str]] = {
    "decode_image": (
        {"image": items(png(*SIX))},
        {"image": items(png(*SIX)[:50])},
        "model 'decode_image': input 'image', item 0: the PNG image (3 x 2) is damaged",
    ),
    "top_k": (
        {"logits": np.array([[1, 3, 2]], np.float32)},
        {"logits": np.array([[1, np.nan, 2]], np.float32)},
        "model 'top_k': input 'logits': item 0: the largest logit is nan",
    ),
    "tokenize": (
        {"text": items(b"one two")},
        {"text": items(b"one \xff")},
        "model 'tokenize': input 'text', item 0: not valid UTF-8 at byte 4",
    ),
    "mean_pool": (
        {"last_hidden_state": HIDDEN, "attention_mask": MASK},
        {"last_hidden_state": HIDDEN * np.nan, "attention_mask": MASK},
        "model 'mean_pool': input 'last_hidden_state', item 0: its embedding is not finite",
    ),
    "lookup": ({"i": np.array([[2]])}, {"i": np.array([[99]])}, "model 'lookup': ONNX Runtime: "),
    "strings": (
        {"x": items("zwölf".encode())},
        {"x": items(b"\xff")},
        "model 'strings', input 'x': element 0 is not valid UTF-8 at byte 0",
    ),
}


@pytest.mark.parametrize("model", CASES)
def test_bad_request_in_a_merged_batch_fails_alone(client: Client, model: str) -> None:
    """The two bad ones of eight requests in one execution get their error, the others answers."""
    good, bad, message = CASES[model]
    alone = ask(client, model, **good)
    before = executions(client, model)
    answers = ask_together(client, model, [good, bad, good, good, good, bad, good, good])
    assert executions(client, model) - before < BATCH, "the requests did not merge"
    for index, answer in enumerate(answers):
        if index in (1, 5):
            assert isinstance(answer, str)
            assert message in answer
            assert "INVALID_ARGUMENT" in answer
        else:
            assert isinstance(answer, dict)
            for name, array in alone.items():
                np.testing.assert_array_equal(answer[name], array)


@pytest.mark.parametrize("model", CASES)
def test_batch_gives_what_its_items_give(client: Client, model: str) -> None:
    """A request of three items answers as three requests of one."""
    good = CASES[model][0]
    alone = ask(client, model, **good)
    batch = ask(client, model, **{name: np.repeat(array, 3, axis=0) for name, array in good.items()})
    for name, array in alone.items():
        assert batch[name].tolist() == array.tolist() * 3


# The steps -------------------------------------------------------------------------------------


def test_models_run_from_their_sources(triton: Running, client: Client) -> None:
    """A stub neither runs a compiled file that lies next to a model's source nor writes one."""
    assert client.is_model_ready("top_k")
    assert [file.parent.parent.parent.name for file in triton.repository.rglob("*.pyc")] == ["top_k"]


def test_decode_image_gives_the_pixels(client: Client) -> None:
    """Two pictures in one request come out with their values, in order."""
    pixels = ask(client, "decode_image", image=items(png(*SIX), png(*SIX[::-1])))["pixels"]
    np.testing.assert_array_equal(pixels.reshape(2, 6), [SIX, SIX[::-1]])


def test_decode_image_gives_bytes(client: Client) -> None:
    """With dtype UINT8 the same two pictures come out as bytes."""
    pixels = ask(client, "decode_bytes", image=items(png(*SIX), png(*SIX[::-1])))["pixels"]
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels.reshape(2, 6), [SIX, SIX[::-1]])


def test_error_names_the_item_of_a_batch(client: Client) -> None:
    """The second of two pictures is no picture, and the message says the second."""
    with pytest.raises(InferenceServerException, match=r"item 1: not a PNG, JPEG or WebP"):
        ask(client, "decode_image", image=items(png(*SIX), b"text"))


def test_images_of_a_batch_count_together(client: Client) -> None:
    """Three pictures of 6 bytes fit into 20; four in one request do not, and say so."""
    assert len(ask(client, "decode_little", image=items(*[png(*SIX)] * 3))["pixels"]) == 3
    with pytest.raises(InferenceServerException, match="4 images of 24 bytes decoded; at most 20"):
        ask(client, "decode_little", image=items(*[png(*SIX)] * 4))


def test_merged_requests_without_room_may_come_again(client: Client) -> None:
    """Three merged requests fit and are answered; the others get UNAVAILABLE, because their input is not at fault."""
    answers = ask_together(client, "decode_full", [{"image": items(png(*SIX))}] * BATCH)
    refused = [answer for answer in answers if isinstance(answer, str)]
    assert len(refused) == BATCH - 3
    assert all("UNAVAILABLE" in text and "no room for 6 bytes" in text for text in refused)


def test_step_without_a_batch_axis(client: Client) -> None:
    """With max_batch_size 0 the same step takes [1] and gives [1, 2, 3]."""
    pixels = ask(client, "decode_one", image=items(png(*SIX))[0])["pixels"]
    np.testing.assert_array_equal(pixels, np.reshape(SIX, (1, 2, 3)))


def test_top_k_gives_labels_and_probabilities(client: Client) -> None:
    """Best first, labels as bytes."""
    answer = ask(client, "top_k", logits=np.array([[1, 3, 2]], np.float32))
    assert answer["label"].tolist() == [[b"b", b"c"]]
    exact = np.exp([3.0, 2.0]) / np.exp([1.0, 3.0, 2.0]).sum()
    np.testing.assert_allclose(answer["score"][0], exact, rtol=1e-6)


def test_top_k_refuses_another_width(client: Client) -> None:
    """The width is free in the configuration and checked against the labels."""
    with pytest.raises(InferenceServerException, match="found 4 logits, wanted 3"):
        ask(client, "top_k", logits=np.zeros((1, 4), np.float32))


def test_tokenize_pads_each_request_to_its_own_bucket(client: Client) -> None:
    """Merged requests of different lengths keep their own bucket, mask and padding id."""
    texts = [b"", b"one two one", b"one", b" ".join([b"two"] * 20)]
    before = executions(client, "tokenize")
    answers = ask_together(client, "tokenize", [{"text": items(text)} for text in texts * 2])
    assert executions(client, "tokenize") - before < BATCH
    expected = [[1, 2, 3, 3], [1, 4, 5, 4, 2, 3], [1, 4, 2, 3], [1, 5, 5, 5, 5, 5, 5, 2]]
    for answer, ids in zip(answers, expected * 2, strict=True):
        assert isinstance(answer, dict)
        assert answer["input_ids"].tolist() == [ids]
        assert answer["attention_mask"].tolist() == [[int(i != 3) for i in ids]]


def test_mean_pool_refuses_a_mask_of_another_length(client: Client) -> None:
    """Both lengths are free in the configuration; they must agree."""
    with pytest.raises(InferenceServerException, match=r"found shape \[1, 3\], wanted \[1, 2\]"):
        ask(client, "mean_pool", last_hidden_state=HIDDEN, attention_mask=np.ones((1, 3), np.int64))


# The stand-in for the onnxruntime backend ------------------------------------------------------


def test_ragged_requests_are_all_answered(client: Client) -> None:
    """Requests of different lengths sent together each get their own length back."""
    requests = [{"x": np.full((1, 1 + k % 3), k, np.float32)} for k in range(BATCH)]
    answers = ask_together(client, "two", requests)
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, dict)
        np.testing.assert_array_equal(answer["twice"], request["x"] * 2)
        np.testing.assert_array_equal(answer["minus"], -request["x"])


def test_only_the_requested_output_comes_back(client: Client) -> None:
    """A request for one output gets one."""
    answer = ask(client, "two", ["twice"], x=np.ones((1, 2), np.float32))
    assert list(answer) == ["twice"]


def test_strings_half_and_bool_pass(client: Client) -> None:
    """The types numpy and Triton name differently go through unchanged."""
    text = items("שלום 🙂".encode(), b"")
    assert ask(client, "strings", x=text)["y"].tolist() == text.tolist()
    half = np.array([[0.5, -2]], np.float16)
    np.testing.assert_array_equal(ask(client, "half", x=half)["y"], half)
    flags = np.array([[True, False]])
    np.testing.assert_array_equal(ask(client, "flags", x=flags)["y"], flags)


def test_models_without_a_batch_axis(client: Client) -> None:
    """max_batch_size 0: any first axis, and rank 0 shown as [1]; requests are never merged."""
    requests = [{"x": np.full((k, 2), k, np.float32)} for k in (1, 2, 3)]
    answers = ask_together(client, "whole", requests)
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, dict)
        np.testing.assert_array_equal(answer["y"], request["x"])
    assert ask(client, "scalar", x=np.array([7], np.float32))["y"].tolist() == [7]


def test_weights_in_other_files_are_read(client: Client) -> None:
    """They lie in the version's folder, as a build and others put them there."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(ask(client, "apart", x=x)["y"], x * 6)


def test_reshape_of_the_configuration(client: Client) -> None:
    """Clients see [4] where the file has [2, 2]."""
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(ask(client, "reshaped", x=values)["y"], values)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 2)), "FP64"),
        (np.zeros((1, 3), np.float32), "shape"),
        (np.zeros((BATCH + 1, 2), np.float32), "batch"),
    ],
)
def test_wrong_dtype_shape_and_batch_are_refused(client: Client, array: np.ndarray, message: str) -> None:
    """An input that the configuration rules out gets an error that names it."""
    with pytest.raises(InferenceServerException, match=message):
        ask(client, "fixed", x=array)


def test_pipeline_of_steps_and_network(client: Client) -> None:
    """A picture through decode_image, an ONNX network and top_k gives the label numpy gives."""
    answer = ask(client, "pipeline", image=items(png(*SIX), png(*SIX[::-1])))
    assert answer["label"].tolist() == [[b"c", b"b"], [b"a", b"b"]]
    logits = np.array([SIX, SIX[::-1]])[:, :3] / 10
    exact = np.exp(logits - logits.max(axis=1, keepdims=True))
    exact = -np.sort(-exact / exact.sum(axis=1, keepdims=True), axis=1)[:, :2]
    np.testing.assert_allclose(answer["score"], exact, rtol=1e-5)


def test_bad_picture_fails_alone_through_the_pipeline(client: Client) -> None:
    """In an ensemble, too, the neighbors of a bad picture are answered."""
    good, bad = {"image": items(png(*SIX))}, {"image": items(b"")}
    answers = ask_together(client, "pipeline", [good, bad, good, good])
    assert [isinstance(answer, dict) for answer in answers] == [True, False, True, True]
    assert "the image has 0 bytes" in str(answers[1])


@pytest.mark.parametrize("model", REFUSALS)
def test_model_that_cannot_be_served_does_not_load(client: Client, model: str) -> None:
    """Triton reports the model as unavailable, with its name and the reason in its log line."""
    index = client.get_model_repository_index()
    (entry,) = [entry for entry in index.models if entry.name == model]
    assert entry.state == "UNAVAILABLE"
    assert f"model '{model}': " in entry.reason
    assert REFUSALS[model] in entry.reason


# Ending ----------------------------------------------------------------------------------------


def test_stopping_finalizes_and_leaves_nothing(tmp_path: Path, triton: Running) -> None:
    """Exit code 0, no shared memory left, even where a step's finalize raises."""
    root = tmp_path / "repository"
    both = through("FP32 [2]")
    config = f"max_batch_size: {BATCH}\n{both}"
    identity(root / "network", TensorProto.FLOAT, ["n", 2], config)
    version = step(root / "raising", "mean_pool", POOL_IO, dimension="4")
    with (version / "model.py").open("a") as file:
        file.write("\n    def finalize(self):\n        raise RuntimeError('from finalize')\n")
    with start_triton(root, tmp_path) as running:
        with grpc.InferenceServerClient(running.address) as client:
            assert ask(client, "network", x=np.ones((1, 2), np.float32))["y"].tolist() == [[1, 1]]
            ask(client, "raising", **CASES["mean_pool"][0])
        assert running.leftovers()
        assert running.stop() == 0
    assert "from finalize" in running.log.read_text()
    assert "Traceback" not in running.log.read_text()
    assert not running.leftovers()
