"""Write a model folder for a network a person already has: `tritonkit new`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.disk import sync, sync_tree, unwritable
from tritonkit.errors import BuildError, SpecError, TritonkitError, UsageError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.export.describe import network_comments, other_comments
from tritonkit.repository.export.external_data import data_files, flat_names, relocate
from tritonkit.repository.export.made_up import make_up
from tritonkit.repository.export.onnx_file import check_file, read_signature, tensors
from tritonkit.repository.export.plain_files import copy_file, require_room
from tritonkit.repository.export.siblings import imports_relatively, package_code, sibling_code
from tritonkit.repository.export.torch_module import load_weights, make_module, run_outputs
from tritonkit.repository.export.torch_shared import small_outputs
from tritonkit.repository.modelspec import FreeAxis, ModelFile, Network, Serving, Spec, Tensor
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.render.language import token_bytes

__all__ = ["new_from_checkpoint", "new_from_onnx", "new_from_torch", "parse_input"]

_INPUT = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[A-Z0-9]+):(?P<shape>.*)")
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)\((?P<min>\d+)-(?P<max>\d+)(/(?P<of>\d+))?\)")
_SCHEMA = "docs/model.schema.json"
"""For editors: in a clone, or where `tritonkit schema` wrote it."""

_CHECKPOINT = "checkpoint"
_CONTEXT = 4096
"""Tokens of prompt and answer that a language model serves at first, where its network was made for more."""
_SEQUENCES = 8
"""Of so many tokens, for which its cache has room."""
_MIB = 1 << 20
_CACHE_STEP = 64 * _MIB

_DTYPE_NAMES = {name: dtype for dtype, name in NUMPY_DTYPES.items()} | {"bfloat16": "BF16"}


def parse_input(text: str) -> tuple[str, Tensor, dict[str, FreeAxis]]:
    """`pixels=FP32:3,224,224`, `ids=INT64:length(2-256)` or `pixels=FP32:3,H(32-640/32),8`: name, tensor without the
    batch axis, and the free axes it names."""
    match = _INPUT.fullmatch(text)
    if match is None or match["dtype"] not in _DTYPE_NAMES.values():
        raise UsageError(
            f"--input {text}",
            found="it cannot be read",
            wanted="NAME=DTYPE:SHAPE, such as pixels=FP32:3,224,224 or ids=INT64:length(2-256)",
        )
    shape: list[int | str] = []
    axes: dict[str, FreeAxis] = {}
    with _as_usage_error(f"--input {text}"):
        for size in filter(None, match["shape"].split(",")):
            axis = _AXIS.fullmatch(size.strip())
            if axis is not None:
                axes[axis["name"]] = FreeAxis(
                    min=int(axis["min"]), max=int(axis["max"]), multiple_of=int(axis["of"] or 1)
                )
                shape.append(axis["name"])
            elif size.strip().isdecimal():
                shape.append(int(size))
            else:
                raise UsageError(
                    f"--input {text}",
                    found=f"size {size!r}",
                    wanted="a number, or NAME(MIN-MAX) or NAME(MIN-MAX/MULTIPLE) for a free axis",
                )
        return match["name"], Tensor(dtype=match["dtype"], shape=tuple(shape)), axes  # type: ignore[arg-type]


@contextmanager
def _as_usage_error(where: str) -> Iterator[None]:
    """What the spec's rules refuse is a mistake on the command line here."""
    try:
        yield
    except ValueError as error:  # pydantic's ValidationError is one
        problems = error.errors() if isinstance(error, ValidationError) else [{"msg": str(error)}]
        found, _, wanted = str(problems[0]["msg"]).removeprefix("Value error, ").partition("; wanted ")
        raise UsageError(where, found=found, wanted=wanted or "what model.yaml may hold") from None


def new_from_onnx(root: Path, name: str, file: Path) -> Path:
    """A folder below `models/` that serves an ONNX file; it batches if the file's axis 0 is free.

    Files that hold weights of the ONNX file come along.
    """
    _refuse_taken(root, name)
    if not file.is_file():
        raise UsageError("--onnx", found=f"there is no file {file}")
    model = check_file(file, "--onnx")
    signature = read_signature(model, "--onnx", batched=False)
    batched = all(t.shape and t.shape[0] == -1 for t in (*signature.inputs, *signature.outputs))
    settings: dict[str, Any] = {"network": {"onnx": file.name}}
    if not batched:
        settings["serving"] = {"max_batch_size": 0}
    inputs = _without_batch(signature) if batched else signature.inputs
    comments = (network_comments(inputs), other_comments(inputs, batched))
    found = data_files(tensors(model), file, "--onnx")
    names = flat_names(found, file.name)
    files = {names[location]: path for location, path in found.items()}
    code = {}
    if relocate(tensors(model), names):
        code = {file.name: model.SerializeToString()}
    else:
        files[file.name] = file
    return _write(root, name, settings, files, code, comments)


def _without_batch(signature: Signature) -> tuple[TensorInfo, ...]:
    return tuple(replace(t, shape=t.shape[1:], axes=t.axis_names[1:]) for t in signature.inputs)


def new_from_torch(
    root: Path, name: str, factory: str, inputs: Sequence[str], weights: Path | None, here: Path
) -> Path:
    """A folder below `models/` for `module:factory`, a Python file in `here` or an installed module.

    The network is run once on made-up data to learn its outputs.
    """
    _refuse_taken(root, name)
    if not inputs:
        raise UsageError(
            "--input", found="none is given", wanted="the inputs of the network, such as --input pixels=FP32:3,224,224"
        )
    if weights is not None and not weights.is_file():
        raise UsageError("--weights", found=f"there is no file {weights}")
    tensors: dict[str, Tensor] = {}
    axes: dict[str, FreeAxis] = {}
    for text in inputs:
        tensor_name, tensor, found = parse_input(text)
        if tensor_name in tensors or any(axes.get(n, a) != a for n, a in found.items()):
            raise UsageError(
                f"--input {text}",
                found="its name, or one of its axes with another range, was given before",
                wanted="each input once, and one range for a free axis",
            )
        tensors[tensor_name] = tensor
        axes |= found
    hook, code = _factory_code(factory, here)
    files = {weights.name: weights} if weights else {}
    network: dict[str, Any] = {"torch": hook}
    if weights is not None:
        network["weights"] = weights.name
    network["inputs"] = {n: {"dtype": t.dtype, "shape": list(t.shape)} for n, t in tensors.items()}
    if axes:
        network["free_axes"] = {
            n: {"min": a.min, "max": a.max} | ({"multiple_of": a.multiple_of} if a.multiple_of > 1 else {})
            for n, a in axes.items()
        }
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with _as_usage_error(f"--torch {factory}"):
                network["outputs"], left_out, unbatched = _probe(
                    Path(scratch), name, hook, code, tensors, axes, weights
                )
        except TritonkitError as error:
            if error.where.startswith("--weights"):
                raise
            error.where = f"--torch {factory}"  # the scratch folder is gone when this is read
            if "wrapper" not in error.todo:
                error.todo = "correct --input, or the Python of the network"
            raise
    notes = [f"# {text}" for text in left_out]
    settings: dict[str, Any] = {"network": network}
    if unbatched:
        tensors = {n: Tensor(dtype=t.dtype, shape=(1, *t.shape)) for n, t in tensors.items()}
        for tensor_name, tensor in tensors.items():
            network["inputs"][tensor_name]["shape"] = list(tensor.shape)
        settings["serving"] = {"max_batch_size": 0}
        notes += [
            f"# {unbatched}: a request is one item, with an axis of size 1 in front.",
            "# To batch, give each output the batch axis in front, or leave such an output out, in a wrapper.",
        ]
    described = [TensorInfo.of(n, t) for n, t in tensors.items()]
    comments = ((), [*notes, *other_comments(described, batched=not unbatched)])
    return _write(root, name, settings, files, code, comments)


def new_from_checkpoint(root: Path, name: str, checkpoint: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """A folder below `models/` for a Hugging Face checkpoint of a causal language model, with a copy of it.

    The cache of keys and values has room for several sequences of the length that is served.
    """
    _refuse_taken(root, name)
    found = read_checkpoint(checkpoint)
    context = min(found.context, _CONTEXT)
    cache = -(-_SEQUENCES * context * token_bytes(found.sizes) // _CACHE_STEP) * _CACHE_STEP
    size = sum(file.stat().st_size for file in found.files)
    require_room(root, size, str(checkpoint))
    say(f"{found.architecture}, {found.context} tokens: copying {format_bytes(size)} ...")
    settings = {
        "network": {"llm": {"checkpoint": _CHECKPOINT}},
        "serving": {"generation": {"context": context, "cache_mib": cache // _MIB}},
    }
    return _write(root, name, settings, {f"{_CHECKPOINT}/{f.name}": f for f in found.files})


def _refuse_taken(root: Path, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,127}", name):
        raise UsageError(
            f"NAME {name!r}", found="not a model's name", wanted="a letter, then at most 127 letters, digits, _ and -"
        )
    if (root / "models" / name).exists():
        raise UsageError(
            f"models/{name}", found="it is there already", todo="choose another name, or edit its model.yaml"
        )


def _factory_code(factory: str, here: Path) -> tuple[str, dict[str, bytes]]:
    """The hook for model.yaml, and the Python behind it: the file, and what it imports from its folder."""
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
        known = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        known = None
    if known is None:
        raise UsageError(
            f"--torch {factory}",
            found=f"no file {file} and no installed module {module}",
            todo="name a file here or an installed module",
        )
    return f"network:{function}", _shim(module, function)


def _shim(module: str, function: str) -> dict[str, bytes]:
    text = f'"""The network of {module}."""\n\nfrom {module} import {function}\n\n__all__ = ["{function}"]\n'
    return {"network.py": text.encode()}


def _probe(
    folder: Path,
    name: str,
    hook: str,
    code: Mapping[str, bytes],
    inputs: Mapping[str, Tensor],
    axes: Mapping[str, FreeAxis],
    weights: Path | None,
) -> tuple[dict[str, Any], tuple[str, ...], str]:
    """Outputs of the network as a spec writes them, by running it at two sizes of each free axis; what of them is no
    tensor; and, where one has no batch axis in front, a sentence about that: shapes are those of one item then, with
    that axis."""
    need("torch", "build")
    for file, text in code.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(text)
    network = Network(
        torch=hook, inputs=dict(inputs), free_axes=dict(axes), outputs={"unknown": Tensor(dtype="FP32", shape=())}
    )
    spec = Spec(folder, ModelFile(name=name, network=network, serving=Serving()))
    signature = Signature(tuple(TensorInfo.of(n, t) for n, t in inputs.items()), (), batched=True)
    module = make_module(spec, str(network.torch), "network.torch").eval()
    if weights is not None:  # refused now rather than by the build
        load_weights(module, weights, f"--weights {weights}")

    def outputs_of(count: int) -> Mapping[str, Any]:
        return run_outputs(spec, module, make_up(spec, signature, count, largest=False)).tensors

    small, unbatched = small_outputs(outputs_of)
    batch = make_up(spec, signature, 1 if unbatched else 2, largest=True)
    found = run_outputs(spec, module, batch)
    large = found.tensors
    sizes: dict[int, set[str]] = {}
    for tensor_name, tensor in inputs.items():
        for size, axis in zip(batch[tensor_name].shape[1:], tensor.shape, strict=True):
            if isinstance(axis, str):
                sizes.setdefault(size, set()).add(axis)
    if [(n, t.ndim) for n, t in small.items()] != [(n, t.ndim) for n, t in large.items()]:
        raise BuildError(
            "",
            found="the number of outputs or of their axes depends on the sizes of the input",
            wanted="the same outputs for every input",
        )
    lead = 0 if unbatched else 1
    outputs = {
        f"{name}_out" if name in inputs else name: _output(small[name], large[name], sizes, lead) for name in large
    }
    return outputs, found.left_out, unbatched


def _output(small: Any, large: Any, sizes: Mapping[int, set[str]], lead: int = 1) -> dict[str, Any]:
    """An output as a spec writes it; an axis that grew has the name of the one input axis of its size."""
    dtype = str(large.dtype).removeprefix("torch.")
    if dtype not in _DTYPE_NAMES:
        raise BuildError("", found=f"an output of {dtype}", wanted=f"one of {', '.join(_DTYPE_NAMES)}")
    shape: list[int | str] = []
    for first, second in zip(small.shape[lead:], large.shape[lead:], strict=True):
        names = sizes.get(second, set())
        shape.append(int(second) if first == second else next(iter(names)) if len(names) == 1 else -1)
    return {"dtype": _DTYPE_NAMES[dtype], "shape": shape}


def _write(
    root: Path,
    name: str,
    settings: Mapping[str, Any],
    files: Mapping[str, Path],
    code: Mapping[str, bytes] | None = None,
    comments: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Path:
    """The folder, complete or not at all; `comments` are lines below `network` and at the end of model.yaml."""
    text = _yaml_text({"name": name, **settings}, *comments)
    if (root / _SCHEMA).is_file():
        text = f"# yaml-language-server: $schema=../../{_SCHEMA}\n{text}"
    folder = root / "models" / name
    staged = folder.with_name(f".{name}-{os.getpid()}")  # a hidden folder is no model
    try:
        staged.mkdir(parents=True)
        (staged / "model.yaml").write_text(text, encoding="utf-8")
        for file, content in (code or {}).items():
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
            (staged / file).write_bytes(content)
        for file, source in files.items():
            (staged / file).parent.mkdir(exist_ok=True)
            copy_file(source, staged / file)
        sync_tree(staged)
        staged.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise unwritable(folder, error, SpecError) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return folder


def _yaml_text(settings: Mapping[str, Any], below_network: Sequence[str], at_end: Sequence[str]) -> str:
    import yaml

    lines: list[str] = []
    for key, value in settings.items():
        in_network = key == "network" and bool(below_network)
        # Short dictionaries in braces, but for one that comments are to stand below.
        style = None if isinstance(value, dict) and not in_network else False
        text = yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=style, width=100)
        lines += [*text.splitlines(), *(f"  {line}" for line in below_network if in_network)]
    return "\n".join([*lines, *at_end, ""])
