"""Pipelines around images, built from a spec and served: steps of a user's own that import shipped cores, detection."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
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


@pytest.fixture(scope="module")
def triton(native_server: SharedBackends, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The pipelines as a build publishes them."""
    root = tmp_path_factory.mktemp("vision")
    (root / "models").mkdir()
    write_brightness(root / "models")
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
