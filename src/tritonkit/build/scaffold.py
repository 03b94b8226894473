"""Write a model folder for a network a person already has: `tritonkit new`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonkit.build.artifact import Signature, TensorInfo
from tritonkit.build.extras import need
from tritonkit.build.onnx_file import check_file, read_signature
from tritonkit.build.samples import NUMPY_DTYPES, dummy_batch
from tritonkit.build.torch_module import load_module, run_outputs
from tritonkit.errors import SpecError, UsageError
from tritonkit.spec import FreeAxis, ModelFile, Network, Serving, Spec, Tensor

__all__ = ["new_from_onnx", "new_from_torch", "parse_input"]

_INPUT = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[A-Z0-9]+):(?P<shape>.*)")
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)\((?P<min>\d+)-(?P<max>\d+)\)")
_DTYPE_NAMES = {name: dtype for dtype, name in NUMPY_DTYPES.items()}


def parse_input(text: str) -> tuple[str, Tensor, dict[str, FreeAxis]]:
    """`pixels=FP32:3,224,224` or `ids=INT64:length(2-256)`: name, tensor without the batch axis,
    and the free axes it names."""
    match = _INPUT.fullmatch(text)
    if match is None or match["dtype"] not in NUMPY_DTYPES:
        raise UsageError(
            f"--input {text}",
            found="it cannot be read",
            wanted="NAME=DTYPE:SHAPE, such as pixels=FP32:3,224,224 or ids=INT64:length(2-256)",
        )
    shape: list[int | str] = []
    axes: dict[str, FreeAxis] = {}
    for size in filter(None, match["shape"].split(",")):
        axis = _AXIS.fullmatch(size.strip())
        if axis is not None:
            axes[axis["name"]] = FreeAxis(min=int(axis["min"]), max=int(axis["max"]))
            shape.append(axis["name"])
        elif size.strip().isdigit():
            shape.append(int(size))
        else:
            raise UsageError(
                f"--input {text}",
                found=f"size {size!r}",
                wanted="a number, or NAME(MIN-MAX) for a free axis",
            )
    return match["name"], Tensor(dtype=match["dtype"], shape=tuple(shape)), axes  # type: ignore[arg-type]


def new_from_onnx(root: Path, name: str, file: Path) -> Path:
    """A folder below `models/` that serves an ONNX file; it batches if the file's axis 0 is free."""
    _refuse_taken(root, name)
    if not file.is_file():
        raise UsageError("--onnx", found=f"there is no file {file}")
    model = check_file(file, "--onnx")
    signature = read_signature(model, "--onnx", batched=False)
    batched = all(t.shape and t.shape[0] == -1 for t in (*signature.inputs, *signature.outputs))
    settings: dict[str, Any] = {"network": {"onnx": file.name}}
    if not batched:
        settings["serving"] = {"max_batch_size": 0}
    return _write(root, name, settings, {file.name: file})


def new_from_torch(
    root: Path, name: str, factory: str, inputs: Sequence[str], weights: Path | None, here: Path
) -> Path:
    """A folder below `models/` for `module:factory`, a Python file in `here` or an installed module.

    The network is run once on made-up data to learn its outputs.
    """
    _refuse_taken(root, name)
    if not inputs:
        raise UsageError(
            "--input",
            found="none is given",
            wanted="the inputs of the network, such as --input pixels=FP32:3,224,224",
        )
    parsed = [parse_input(text) for text in inputs]
    tensors = {name: tensor for name, tensor, _ in parsed}
    axes = {name: axis for _, _, found in parsed for name, axis in found.items()}
    hook, code = _factory_code(factory, here)
    files = {weights.name: weights} if weights else {}
    network: dict[str, Any] = {"torch": hook}
    if weights is not None:
        network["weights"] = weights.name
    network["inputs"] = {n: {"dtype": t.dtype, "shape": list(t.shape)} for n, t in tensors.items()}
    if axes:
        network["free_axes"] = {n: {"min": a.min, "max": a.max} for n, a in axes.items()}
    with tempfile.TemporaryDirectory() as scratch:
        probe = _probe(Path(scratch), name, hook, code, tensors, axes)
        network["outputs"] = probe
    return _write(root, name, {"network": network}, files, code)


def _refuse_taken(root: Path, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise UsageError(
            f"NAME {name!r}",
            found="not a model's name",
            wanted="a letter, then letters, digits, _ and -",
        )
    if (root / "models" / name).exists():
        raise UsageError(
            f"models/{name}",
            found="it is there already",
            todo="choose another name, or edit its model.yaml",
        )


def _factory_code(factory: str, here: Path) -> tuple[str, dict[str, str]]:
    """The hook for model.yaml, and the Python file behind it."""
    module, separator, function = factory.partition(":")
    if not separator or not function.isidentifier():
        raise UsageError(
            f"--torch {factory}",
            found="it cannot be read",
            wanted="module:factory, such as network:build",
        )
    file = here / f"{module.replace('.', '/')}.py"
    if file.is_file():
        return f"{file.stem}:{function}", {file.name: file.read_text()}
    try:
        known = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        known = None
    if known is None:
        raise UsageError(
            f"--torch {factory}",
            found=f"no file {file} and no installed module {module}",
            todo="name a file here or an installed module",
        )
    text = f'"""The network of {module}."""\n\nfrom {module} import {function}\n\n__all__ = ["{function}"]\n'
    return f"network:{function}", {"network.py": text}


def _probe(
    folder: Path, name: str, hook: str, code: Mapping[str, str],
    inputs: Mapping[str, Tensor], axes: Mapping[str, FreeAxis],
) -> dict[str, Any]:  # fmt: skip
    """Outputs of the network as a spec writes them, by running it at two sizes of each free axis."""
    need("torch", "build")
    for file, text in code.items():
        (folder / file).write_text(text)
    network = Network(
        torch=hook,
        inputs=dict(inputs),
        free_axes=dict(axes),
        outputs={"unknown": Tensor(dtype="FP32", shape=())},
    )
    spec = Spec(folder, ModelFile(name=name, network=network, serving=Serving()))
    signature = Signature(tuple(TensorInfo.of(n, t) for n, t in inputs.items()), (), batched=True)
    module = load_module(spec)
    small = run_outputs(spec, module, dummy_batch(spec, signature, 2, largest=False))
    batch = dummy_batch(spec, signature, 2, largest=True)
    large = run_outputs(spec, module, batch)
    sizes = {
        batch[n].shape[position + 1]: axis
        for n, t in inputs.items() for position, axis in enumerate(t.shape) if isinstance(axis, str)
    }  # fmt: skip
    outputs = {}
    for index, (first, second) in enumerate(zip(small, large, strict=True)):
        shape = [
            sizes.get(b, -1) if a != b else int(b)
            for a, b in zip(first.shape[1:], second.shape[1:], strict=True)
        ]
        outputs[f"output_{index}"] = {"dtype": _DTYPE_NAMES[str(second.dtype)], "shape": shape}
    return outputs


def _write(
    root: Path,
    name: str,
    settings: Mapping[str, Any],
    files: Mapping[str, Path],
    code: Mapping[str, str] | None = None,
) -> Path:
    """The folder, complete or not at all."""
    import yaml

    text = "# yaml-language-server: $schema=../../docs/model.schema.json\n" + yaml.safe_dump(
        {"name": name, **settings}, sort_keys=False, default_flow_style=None, width=100
    )
    folder = root / "models" / name
    staged = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root / "models"))
    try:
        (staged / "model.yaml").write_text(text)
        for file, content in (code or {}).items():
            (staged / file).write_text(content)
        for file, source in files.items():
            shutil.copyfile(source, staged / file)
        staged.chmod(0o755)
        staged.rename(folder)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        raise SpecError(
            str(folder), found=f"it cannot be written: {error.strerror or error}"
        ) from error
    return folder
