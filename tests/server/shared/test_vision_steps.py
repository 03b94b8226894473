"""Pipelines around images, built from a spec and served: steps of a user's own that import shipped cores, detection."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from tritonclient.utils import InferenceServerException

from tests.server.raw import Running, ask, items
from tests.server.sharing import SharedBackends
from tritonkit.repository.pipeline import build_repository

BRIGHTNESS = '''"""The mean of each channel of an image that a stranger sent."""

import numpy as np
from decode_image_core import Settings, decode_image
from step_support import loading


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args):
        """Read nothing: it has no parameters."""
        with loading(args) as self.step:
            self.settings = Settings(height=4, width=4, resize="letterbox", pad_value=0)

    def execute(self, requests):
        """Decode each image."""
        return self.step.answer(requests, self._means, compute=list)

    def _means(self, request):
        images = self.step.read(request, "photo")[:, 0]
        return {"x": np.stack([decode_image(image, self.settings).mean((1, 2)) for image in images])}
'''
CONTRACT = """description: The mean of each channel
inputs: {photo: {dtype: BYTES, shape: [1]}}
outputs: {x: {dtype: FP32, shape: [3]}}
"""


def network(folder: Path, *nodes: tuple[str, list[str], str], x: list[object], y: list[object]) -> None:
    """An ONNX file from x to y."""
    graph = helper.make_graph(
        [helper.make_node(kind, given, [made]) for kind, given, made in nodes],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *x])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", *y])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())


def write_brightness(models: Path) -> None:
    """A step of the user's own in front of a network that doubles."""
    folder = models / "brightness"
    step = folder / "steps" / "means"
    step.mkdir(parents=True)
    (step / "step.yaml").write_text(CONTRACT)
    (step / "model.py").write_text(BRIGHTNESS)
    network(folder, ("Add", ["x", "x"], "y"), x=[3], y=[3])
    (folder / "model.yaml").write_text(
        "name: brightness\nnetwork: {onnx: net.onnx}\npipeline: [{step: means}, network]\n"
    )


CELLS = np.array([[8 * column + 4, 8 * row + 4, 8, 8] for row in range(4) for column in range(4)], np.float32)
"""The 16 boxes that the detector below can give: center and size."""
SEEN = "{height: 32, width: 32, resize: letterbox, "


def write_blobs(models: Path) -> None:
    """A detector with YOLOv8's form of output: each cell is a box, its mean red, green and blue are the scores."""
    folder = models / "blobs"
    folder.mkdir()
    constants = {
        "shape": np.array([0, 3, 16]),
        "cells": np.ascontiguousarray(CELLS.T)[None],
        "nothing": np.float32([0]),
        "red": np.array([0]),
    }
    nodes = [
        helper.make_node("AveragePool", ["x"], ["means"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Reshape", ["means", "shape"], ["scores"]),
        helper.make_node("Gather", ["scores", "red"], ["one"], axis=1),
        helper.make_node("Mul", ["one", "nothing"], ["none"]),
        helper.make_node("Add", ["none", "cells"], ["boxes"]),
        helper.make_node("Concat", ["boxes", "scores"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 7, 16])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    (folder / "colors.txt").write_text("red\ngreen\nblue\n")
    (folder / "model.yaml").write_text(
        "name: blobs\nnetwork: {onnx: net.onnx}\npipeline:\n"
        f"- {{step: decode_image, parameters: {SEEN}pad_value: 0, image_size: true}}, outputs: {{pixels: x}}}}\n"
        "- network\n"
        f"- {{step: detect, parameters: {SEEN}k: 3, labels: colors.txt}}, inputs: {{predictions: y}}}}\n"
    )


def write_parts(models: Path) -> None:
    """The same detector, and the pixels of each of its boxes."""
    shutil.copytree(models / "blobs", models / "parts")
    file = models / "parts" / "model.yaml"
    file.write_text(
        file.read_text().replace("name: blobs", "name: parts")
        + "- {step: crop, parameters: {count: true, k: 3, height: 4, width: 6, dtype: UINT8, layout: NHWC}}\n"
    )


def write_colors(models: Path) -> None:
    """A network that gives its pixels back: a mask of each color, as run lengths."""
    folder = models / "colors"
    folder.mkdir()
    network(folder, ("Identity", ["x"], "y"), x=[3, 32, 32], y=[3, 32, 32])
    (folder / "model.yaml").write_text(
        "name: colors\nnetwork: {onnx: net.onnx}\npipeline:\n"
        f"- {{step: decode_image, parameters: {SEEN}image_size: true}}, outputs: {{pixels: x}}}}\n"
        "- network\n"
        f"- {{step: mask, parameters: {SEEN}sigmoid: false, encoding: counts}}, inputs: {{logits: y}}}}\n"
    )


@pytest.fixture(scope="module")
def triton(native_server: SharedBackends, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The pipelines as a build publishes them."""
    root = tmp_path_factory.mktemp("vision")
    (root / "models").mkdir()
    write_brightness(root / "models")
    write_blobs(root / "models")
    write_colors(root / "models")
    write_parts(root / "models")
    built = build_repository(root, cores=2)

    def write(repository: Path) -> None:
        for folder in built.path.iterdir():
            if folder.is_dir() and (folder / "config.pbtxt").is_file():
                shutil.copytree(folder, repository / folder.name)

    with native_server.serving(write) as running:
        yield running


@pytest.fixture(scope="module")
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw Triton client."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    """The file."""
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def test_a_users_step_decodes_images_by_the_shipped_core(client: grpc.InferenceServerClient) -> None:
    """Its folder has model.py and step.yaml alone; the decoder and all that it imports are published with it."""
    photo = encoded(Image.new("RGB", (40, 20), (255, 51, 0)), "WEBP")
    answer = ask(client, "brightness", photo=items(photo))
    np.testing.assert_allclose(answer["y"], [[1.0, 0.2, 0.0]], atol=0.02)
    with pytest.raises(InferenceServerException, match="not a PNG, JPEG or WebP"):
        ask(client, "brightness", photo=items(b"no image"))


def test_boxes_come_back_in_pixels_of_the_source(client: grpc.InferenceServerClient) -> None:
    """Images of several sizes and formats in one batch, decoded natively and in Python: boxes, labels and counts."""
    wide = Image.new("RGB", (64, 32))
    wide.paste("red", (16, 0, 32, 16))
    tall = Image.new("RGB", (160, 320))
    tall.paste("blue", (0, 80, 80, 160))
    tall.paste("lime", (80, 240, 160, 320))
    files = [encoded(wide), encoded(tall, "WEBP"), encoded(Image.new("RGB", (1, 1)))]
    answer = ask(client, "blobs", image=items(*files))
    assert answer["count"].tolist() == [[1], [2], [0]]
    assert answer["label"][0].tolist() == [b"red", b"", b""]
    assert answer["box"][0].tolist() == [[16, 0, 32, 16], [0] * 4, [0] * 4]
    boxes = dict(zip(answer["label"][1].tolist(), answer["box"][1].tolist(), strict=True))
    assert boxes == {b"blue": [0, 80, 80, 160], b"green": [80, 240, 160, 320], b"": [0] * 4}
    assert set(answer) == {"box", "score", "label", "class_id", "count"}


def test_masks_come_back_in_the_size_of_the_source(client: grpc.InferenceServerClient) -> None:
    """Each image of a batch has masks of its own size, in COCO's run lengths: columns, beginning with zeros."""
    wide = Image.new("RGB", (64, 32))
    wide.paste("red", (16, 0, 32, 32))
    answer = ask(client, "colors", image=items(encoded(wide), encoded(Image.new("RGB", (3, 5), "blue"))))
    texts = [[json.loads(text) for text in item] for item in answer["rle"].tolist()]
    assert texts[0][0] == {"size": [32, 64], "counts": [16 * 32, 16 * 32, 32 * 32]}
    assert texts[0][1] == {"size": [32, 64], "counts": [32 * 64]}
    assert [text["counts"] for text in texts[1]] == [[15], [15], [0, 15]]
    assert set(answer) == {"rle"}


def test_boxes_are_cut_out_of_the_image_that_was_sent(client: grpc.InferenceServerClient) -> None:
    """The client's image goes to the detector and to the step that cuts; crops behind the last box are padding."""
    wide = Image.new("RGB", (64, 32))
    wide.paste((255, 40, 0), (16, 0, 32, 16))
    answer = ask(client, "parts", image=items(encoded(wide), encoded(Image.new("RGB", (8, 8)), "JPEG")))
    assert answer["label"].tolist() == [[b"red", b"", b""], [b""] * 3]
    assert answer["pixels"].shape == (2, 3, 4, 6, 3)
    assert (answer["pixels"][0, 0] == (255, 40, 0)).all()
    assert (answer["pixels"][0, 1:] == 114).all()
    assert (answer["pixels"][1] == 114).all()
    with pytest.raises(InferenceServerException, match="item 1: not a PNG, JPEG or WebP"):
        ask(client, "parts", image=items(encoded(wide), b"no image"))
