"""Real requests for the models in `models/`, each with the check of its answer."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.wire.tensors import FIXED
from tritonkit.errors import InferenceError, Overloaded, UsageError
from tritonkit.perf.load.inputs import read_inputs, split_inputs
from tritonkit.perf.load.kinds import STREAM, answers_to, kind_of
from tritonkit.perf.load.workload import Request, Workload, expect_each, expect_embedding, expect_label, expect_like
from tritonkit.repository.export import load_hook
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.samples import batches
from tritonkit.repository.modelspec import load, load_named, read_example

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tritonkit.client import Client, TensorSpec
    from tritonkit.repository.modelspec import Spec

__all__ = ["IMAGES", "PAIRS", "SHIPPED", "prepare"]

IMAGES = 360  # the held-out fifth
_RIGHT = 0.97
_SAMPLES = 16  # batches of a network's own samples
_FREE_SIZES = (32, 64, 224, 8, 3, 1)  # tried in turn for free axes of a model without a spec

PAIRS = (
    ("Where is my parcel?", "My order has not been delivered yet and I want to know where it is."),
    ("Reset my password", "I forgot my login details and cannot get into my account any more."),
    (
        "Interest rates went up.",
        "The central bank raised interest rates by a quarter of a point, the third such step this "
        "year, and said that borrowing would stay expensive until prices stop rising so quickly. ",
    ),
    (
        "Bake the bread for forty minutes.",
        "Preheat the oven and put the loaf on the middle shelf. Bake the bread for forty minutes, "
        "until the crust is brown and the loaf sounds hollow when you knock on its bottom. "
        "Let the baked bread cool on a rack before you cut it. " * 2,
    ),
    (
        "Plants make sugar from sunlight.",
        "Photosynthesis is how plants turn sunlight, water and carbon dioxide into sugar and "
        "oxygen. The green leaves of a plant catch the light, and the sugar feeds the plant. " * 4,
    ),
    (
        "A probe reached Mars.",
        "The spacecraft entered orbit around Mars this morning after a journey of seven months. "
        "From its orbit the probe will map the red planet and look for water under its dust. " * 8,
    ),
)
"""Pairs of texts with one meaning, from 3 words to some 270: a short and a long one are nearer to each other than to
all others, so the answers that a load is checked against are themselves checked."""


def digits(root: Path, client: Client) -> Workload:
    """PNG images of the digits held out from training, and their labels.

    The network does not read all of them right; those that it misreads in a first look are left
    out, so that each wrong label later is the server's doing. ServerUnavailable and its like if it
    does not answer; InferenceError if it misreads too many.
    """
    hook = load_hook(load(root / "models" / "digits", root), "data:held_out_images", "load test")
    images: list[tuple[bytes, str]] = hook(IMAGES)
    model = client.model("digits")
    size = max(1, model.signature.max_batch_size)
    parts = [images[start : start + size] for start in range(0, len(images), size)]
    labels = [best.decode() for part in parts for best in model.predict(image=[png for png, _ in part])["label"][:, 0]]
    right = [pair for pair, label in zip(images, labels, strict=True) if pair[1] == label]
    if len(right) < _RIGHT * len(images):
        raise InferenceError(
            f"model digits at {client.address}",
            found=f"it reads {len(right)} of {len(images)} held-out images right",
            wanted=f"at least {_RIGHT:.0%} of them",
            todo="look at what is served before loading it",
        )
    requests = [Request({"image": png}, expect_label(label)) for png, label in right]
    return Workload("digits", tuple(requests))


def sentences(_root: Path, client: Client) -> Workload:
    """The texts of `PAIRS`; each answer must equal the first one.

    InferenceError if the first answers do not put the texts of one meaning together.
    """
    texts = [text for pair in PAIRS for text in pair]
    model = client.model("sentences")
    embeddings = np.concatenate([model.predict(text=text)["embedding"] for text in texts])
    cosines = embeddings @ embeddings.T - 2 * np.eye(len(texts), dtype=embeddings.dtype)
    partners = np.arange(len(texts)) ^ 1
    # Written so that NaN, which compares with nothing, is wrong too.
    if not bool((cosines.argmax(axis=1) == partners).all() and np.isfinite(cosines).all()):
        raise InferenceError(
            f"model sentences at {client.address}",
            found="texts of one meaning are not each other's nearest",
            wanted="embeddings that mean something",
            todo="look at what is served before loading it",
        )
    requests = [
        Request({"text": text}, expect_embedding(embedding)) for text, embedding in zip(texts, embeddings, strict=True)
    ]
    return Workload("sentences", tuple(requests))


SHIPPED: dict[str, Callable[[Path, Client], Workload]] = {"digits": digits, "sentences": sentences}
"""Makers of the workloads of the models that ship."""


def prepare(name: str, root: Path, client: Client, pairs: Sequence[str] = ()) -> Workload:
    """The workload of a model: the given inputs; else a function for it, here or in the project; else its example from
    model.yaml; else, for a network without steps, the samples that a build would check it on.

    A model without a spec, as in a foreign repository, gets made-up numbers.

    Args:
        name: the model's name.
        root: the project.
        client: a client of a server that serves the model.
        pairs: inputs as on the command line, NAME=VALUE.

    Raises:
        UsageError: the model neither ships nor has an example for each input.
        ClientError: the server does not answer, or its answer is invalid.
    """
    if pairs:
        inputs = read_inputs(split_inputs(pairs), client.model(name).signature)
        return Workload(name, (_expecting(client, name, inputs),))
    makers = SHIPPED | _own(root)
    if name in makers:
        return makers[name](root, client)
    try:
        spec = load_named(root, name)
    except UsageError:  # no spec has this name
        return _made_up(name, client)
    model = client.model(name)
    needed = [tensor for tensor in model.signature.inputs.values() if not tensor.optional]
    numbers = all(tensor.datatype != "BYTES" for tensor in needed)
    if numbers and not spec.model.example and not spec.steps:
        return _sampled(spec, client)
    if numbers and not spec.model.example and not spec.model.has_network:
        return _made_up(name, client)
    inputs = {key: read_example(spec, key) for key in spec.model.example}
    if missing := [tensor.name for tensor in needed if tensor.name not in inputs]:
        raise _no_example(f"{spec.file} example", missing[0])
    return Workload(name, (_expecting(client, name, inputs),))


def _no_example(where: str, missing: str) -> UsageError:
    return UsageError(
        where,
        found=f"no example for input {missing}",
        wanted="real data to send",
        todo=f"add it, or give it with --input {missing}=VALUE, or add a function to WORKLOADS of the project's "
        "loadtest/workloads.py",
    )


def _expecting(client: Client, name: str, inputs: Mapping[str, Any]) -> Request:
    """A request whose answers must stay equal to the first ones."""
    kind = kind_of(client, name)
    answers = answers_to(client, name, inputs, kind)
    return Request(inputs, expect_each(answers) if kind == STREAM else expect_like(answers[0]))


def _made_up(name: str, client: Client) -> Workload:
    """Made-up numbers for a model whose tensors alone are known, at the first size of free axes that it accepts."""
    signature = client.model(name).signature
    needed = [tensor for tensor in signature.inputs.values() if not tensor.optional]
    if texts := [tensor.name for tensor in needed if tensor.datatype == "BYTES"]:
        raise _no_example(f"model {name}", texts[0])
    random = np.random.default_rng(0)
    refused: InferenceError | None = None
    for size in _FREE_SIZES if any(-1 in tensor.dims for tensor in needed) else (1,):
        inputs = {tensor.name: _numbers(random, tensor, size) for tensor in needed}
        try:
            return Workload(name, (_expecting(client, name, inputs),))
        except Overloaded:
            raise
        except InferenceError as error:
            refused = error
    raise UsageError(
        f"model {name}",
        found="it refuses made-up inputs",
        wanted="real data to send",
        todo="give it with --input NAME=VALUE",
        details=str(refused),
    ) from refused


def _numbers(random: np.random.Generator, tensor: TensorSpec, size: int) -> NDArray[Any]:
    shape = [size if axis == -1 else axis for axis in tensor.dims]
    shape = [1, *shape] if tensor.batched else shape
    dtype = FIXED.get(tensor.datatype, FIXED["FP32"])
    if dtype.kind == "f":
        return random.random(shape).astype(dtype)
    return np.ones(shape, dtype)  # for an index, a length or a mask, 1 is the usual default


def _own(root: Path) -> dict[str, Callable[[Path, Client], Workload]]:
    """`WORKLOADS` of the project's loadtest/workloads.py, if it has one."""
    file = root / "loadtest" / "workloads.py"
    if not file.is_file():
        return {}
    own: dict[str, Any] = runpy.run_path(str(file))
    workloads = own.get("WORKLOADS")
    if not isinstance(workloads, dict):
        raise UsageError(str(file), found="it has no WORKLOADS", wanted="WORKLOADS = {model: function(root, client)}")
    return workloads


def _sampled(spec: Spec, client: Client) -> Workload:
    """Single items of the network's samples, real or made up; answers stay like the first ones."""
    signature: Any = client.model(spec.name).signature
    batched = signature.max_batch_size > 0
    is_real = spec.model.quality.samples is not None
    sent = [tensor for tensor in signature.inputs.values() if is_real or not tensor.optional]
    tensors = [TensorInfo(tensor.name, tensor.datatype, tuple(tensor.dims)) for tensor in sent]
    samples = batches(spec, Signature(tuple(tensors), (), batched))[:_SAMPLES]
    if batched:
        samples = [{name: array[:1] for name, array in batch.items()} for batch in samples]
    return Workload(spec.name, tuple(_expecting(client, spec.name, item) for item in samples))
