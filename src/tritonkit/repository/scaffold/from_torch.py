"""`tritonkit new --torch`: a folder for a PyTorch network, which runs once to learn its outputs."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tritonkit.errors import BuildError, TritonkitError, UsageError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.describe import other_comments
from tritonkit.repository.export.made_up import make_up
from tritonkit.repository.export.siblings import imports_relatively, package_code, sibling_code
from tritonkit.repository.export.torch_module import load_weights, make_module, run_outputs
from tritonkit.repository.export.torch_shared import small_outputs
from tritonkit.repository.modelspec import FreeAxis, ModelFile, Network, Serving, Spec, Tensor
from tritonkit.repository.scaffold.folder import refuse_taken, write_folder
from tritonkit.repository.scaffold.inputs import DTYPE_NAMES, as_usage_error, parse_inputs

__all__ = ["learn_outputs", "learned_settings", "new_from_torch"]


class _Given(NamedTuple):
    """The network as given on the command line."""

    name: str
    hook: str
    code: Mapping[str, bytes]
    inputs: dict[str, Tensor]
    axes: dict[str, FreeAxis]
    weights: Path | None


class Learned(NamedTuple):
    """The network's outputs as a spec writes them, and notes on what it returned besides tensors.

    `unbatched` is a sentence about an output without a batch axis in front. Shapes are those of one item then, with
    an axis of size 1.
    """

    outputs: dict[str, Any]
    left_out: tuple[str, ...]
    unbatched: str


def new_from_torch(
    root: Path, name: str, factory: str, inputs: Sequence[str], weights: Path | None, here: Path
) -> Path:
    """A folder below `models/` for `module:factory`, a Python file in `here` or an installed module.

    The network is run once on made-up data to learn its outputs.
    """
    refuse_taken(root, name)
    tensors, axes = parse_inputs(inputs)
    if weights is not None and not weights.is_file():
        raise UsageError("--weights", found=f"there is no file {weights}")
    hook, code = _factory_code(factory, here)
    given = _Given(name, hook, code, tensors, axes, weights)
    learned = _learn(given, f"--torch {factory}")
    source = {"torch": hook, **({"weights": weights.name} if weights else {})}
    settings, end = learned_settings(source, tensors, axes, learned)
    return write_folder(root, name, settings, {weights.name: weights} if weights else {}, code, ((), end))


def learned_settings(
    source: Mapping[str, str], tensors: Mapping[str, Tensor], axes: Mapping[str, FreeAxis], learned: Learned
) -> tuple[dict[str, Any], list[str]]:
    """Settings of a network whose outputs were learned, and comments for the end of model.yaml."""
    notes = [f"# {text}" for text in learned.left_out]
    settings: dict[str, Any] = {}
    if learned.unbatched:
        tensors = {n: Tensor(dtype=t.dtype, shape=(1, *t.shape)) for n, t in tensors.items()}
        settings["serving"] = {"max_batch_size": 0}
        notes += [
            f"# {learned.unbatched}: a request is one item, with an axis of size 1 in front.",
            "# To batch, give each output the batch axis in front, or leave such an output out, in a wrapper.",
        ]
    settings = {"network": _network_settings(source, tensors, axes) | {"outputs": learned.outputs}} | settings
    described = [TensorInfo.of(n, t) for n, t in tensors.items()]
    return settings, [*notes, *other_comments(described, batched=not learned.unbatched)]


def _network_settings(
    source: Mapping[str, str], tensors: Mapping[str, Tensor], axes: Mapping[str, FreeAxis]
) -> dict[str, Any]:
    network: dict[str, Any] = dict(source)
    network["inputs"] = {name: {"dtype": t.dtype, "shape": list(t.shape)} for name, t in tensors.items()}
    if axes:
        network["free_axes"] = {
            name: {"min": axis.min, "max": axis.max}
            | ({"multiple_of": axis.multiple_of} if axis.multiple_of > 1 else {})
            for name, axis in axes.items()
        }
    return network


def _learn(given: _Given, where: str) -> Learned:
    """Run the network in a scratch folder. An error names the option instead, because that folder is gone when it is
    read."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with as_usage_error(where):
                return _probe(Path(scratch), given)
        except TritonkitError as error:
            if not error.where.startswith("--weights"):
                error.where = where
                if "wrapper" not in error.todo:
                    error.todo = "correct --input, or the Python of the network"
            raise


def _factory_code(factory: str, here: Path) -> tuple[str, dict[str, bytes]]:
    """The hook for model.yaml, and the Python behind it: the file, and modules of its folder that it imports."""
    module, separator, function = factory.partition(":")
    if not separator or not function.isidentifier():
        raise UsageError(
            f"--torch {factory}", found="it cannot be read", wanted="module:factory, such as network:build"
        )
    file = here / f"{module.replace('.', '/')}.py"
    if file.is_file():
        if not file.stem.isidentifier():
            raise UsageError(
                f"--torch {factory}",
                found=f"{file.name} cannot be imported under that name",
                wanted="a file named with letters, digits and _",
            )
        if imports_relatively(file):
            package = here / module.partition(".")[0]
            return f"network:{function}", {
                **_shim(module, function),
                **package_code(package),
                **sibling_code(file, (here,)),
            }
        siblings = sibling_code(file, (file.parent, here))
        return f"{file.stem}:{function}", {**siblings, file.name: file.read_bytes()}
    try:
        installed = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        installed = None
    if installed is None:
        raise UsageError(
            f"--torch {factory}",
            found=f"no file {file} and no installed module {module}",
            todo="name a file here or an installed module",
        )
    return f"network:{function}", _shim(module, function)


def _shim(module: str, function: str) -> dict[str, bytes]:
    text = f'"""The network of {module}."""\n\nfrom {module} import {function}\n\n__all__ = ["{function}"]\n'
    return {"network.py": text.encode()}


def _probe(folder: Path, given: _Given) -> Learned:
    """Run the network at two sizes of each free axis."""
    need("torch", "build")
    return learn_outputs(*_module(folder, given))


def learn_outputs(spec: Spec, module: Any) -> Learned:
    """Run a module on the inputs of a spec, at two sizes of each free axis, to learn its outputs."""
    inputs = spec.model.network.inputs
    signature = Signature(tuple(TensorInfo.of(n, t) for n, t in inputs.items()), (), batched=True)

    def outputs_of(count: int) -> Mapping[str, Any]:
        return run_outputs(spec, module, make_up(spec, signature, count, largest=False)).tensors

    small, unbatched = small_outputs(outputs_of)
    batch = make_up(spec, signature, 1 if unbatched else 2, largest=True)
    result = run_outputs(spec, module, batch)
    large = result.tensors
    if [(n, t.ndim) for n, t in small.items()] != [(n, t.ndim) for n, t in large.items()]:
        raise BuildError(
            "",
            found="the number of outputs or of their axes depends on the sizes of the input",
            wanted="the same outputs for every input",
        )
    sizes: dict[int, set[str]] = {}
    for name, tensor in inputs.items():
        for size, axis in zip(batch[name].shape[1:], tensor.shape, strict=True):
            if isinstance(axis, str):
                sizes.setdefault(size, set()).add(axis)
    lead = 0 if unbatched else 1
    outputs = {
        f"{name}_out" if name in inputs else name: _output(small[name], large[name], sizes, lead) for name in large
    }
    return Learned(outputs, result.left_out, unbatched)


def _module(folder: Path, given: _Given) -> tuple[Spec, Any]:
    """The network, made from a copy of its Python in `folder`."""
    for file, text in given.code.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(text)
    outputs = {"unknown": Tensor(dtype="FP32", shape=())}
    network = Network(torch=given.hook, inputs=given.inputs, free_axes=given.axes, outputs=outputs)
    spec = Spec(folder, ModelFile(name=given.name, network=network, serving=Serving()))
    module = make_module(spec, str(network.torch), "network.torch").eval()
    if given.weights is not None:  # refused now rather than by the build
        load_weights(module, given.weights, f"--weights {given.weights}")
    return spec, module


def _output(small: Any, large: Any, sizes: Mapping[int, set[str]], lead: int = 1) -> dict[str, Any]:
    """An output as a spec writes it; an axis that grew gets the name of the only input axis of its size."""
    dtype = str(large.dtype).removeprefix("torch.")
    if dtype not in DTYPE_NAMES:
        raise BuildError("", found=f"an output of {dtype}", wanted=f"one of {', '.join(DTYPE_NAMES)}")
    shape: list[int | str] = []
    for first, second in zip(small.shape[lead:], large.shape[lead:], strict=True):
        names = sizes.get(second, set())
        shape.append(int(second) if first == second else next(iter(names)) if len(names) == 1 else -1)
    return {"dtype": DTYPE_NAMES[dtype], "shape": shape}
