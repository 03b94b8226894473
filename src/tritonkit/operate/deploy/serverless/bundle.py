"""Contents of a function: the handler, a model's files as they are served, and the packages for pip."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tritonkit
from tritonkit.errors import RenderError, UsageError
from tritonkit.operate.deploy.serverless.packages import Pin, pins, requirements
from tritonkit.repository.export import sha256_file
from tritonkit.repository.modelspec import Spec, load_named, load_readable, resolve, resolve_file
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.variants import FORMS, PLAIN, parse
from tritonkit.repository.optimize.variants.int8_cpu import BITS_VARIABLE
from tritonkit.repository.pipeline import build_artifact, render_models
from tritonkit.repository.publish.integrity import MANIFEST
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.render.message import parse_text
from tritonkit.resources import shipped

__all__ = ["FUNCTION", "Bundle", "bundle", "chosen_variant", "only_model"]

FUNCTION = "function"
"""The folder that becomes /var/task."""
_SOURCES = "deploy/lambda"
_BACKENDS = "python_backends/backends"
_ENGINE = "onnxruntime"
_VERSION = "1"
_DATATYPES = {"TYPE_STRING": "BYTES"}

Content = bytes | Path


@dataclass(frozen=True)
class Bundle:
    """The files of a function: path below its folder -> bytes, or the file they are copied from."""

    model: str
    variant: str
    files: Mapping[str, Content]
    digests: Mapping[str, str]
    """Path -> SHA-256."""

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        sizes = (
            len(content) if isinstance(content, bytes) else content.stat().st_size for content in self.files.values()
        )
        return sum(sizes)


def only_model(root: Path) -> str:
    """The model of a project that has one.

    Raises:
        UsageError: the project has several models, or none.
    """
    specs, failed = load_readable(root, every=True)
    names = sorted([*(spec.name for spec in specs if not spec.entry), *failed])
    if len(names) != 1:
        raise UsageError("--model", found="none", wanted=f"one of {', '.join(names) or 'models/'}: a function has one")
    return names[0]


def chosen_variant(spec: Spec, name: str | None) -> str:
    """The variant of a function: `int8` is the spec's first ONNX INT8 form, `fp32` is onnx-fp32; by default what
    the spec serves, where ONNX Runtime runs it.

    Raises:
        RenderError: the model is not a network that ONNX Runtime runs.
        SpecError: there is no variant of that name.
    """
    network = spec.model.network
    if source := next((key for key in ("python", "file", "folder") if getattr(network, key)), None):
        raise RenderError(
            str(spec.file),
            found=f"network.{source}, which is no ONNX file",
            wanted="a network as an ONNX file, which a function runs without Triton",
        )
    if name == "fp32":
        return PLAIN
    if name == "int8":
        mine = (name for name in spec.model.optimize.variants if name.startswith("onnx-int8"))
        return next(mine, "onnx-int8-dynamic")
    serving = spec.model.serving.variant
    if name is None:
        return serving if serving in FORMS and FORMS[serving].engine == _ENGINE else PLAIN
    variant = parse(name, "--variant")
    if variant.runtime != _ENGINE:
        able = [name for name, form in FORMS.items() if form.engine == _ENGINE]
        raise RenderError(
            f"--variant {name}", found="ONNX Runtime does not run it", wanted=f"fp32, int8 or one of {', '.join(able)}"
        )
    return name


def bundle(
    root: Path, name: str, variant: str | None = None, more: Sequence[Pin] = (), progress: Progress | None = None
) -> Bundle:
    """The function of a model; a variant that is not in the cache is built first, and must pass the quality gate.

    Raises:
        SpecError: there is no such model.
        GateError: the model does not pass its quality gate.
        RenderError: the model cannot run without Triton.
    """
    spec = load_named(root, name)
    if spec.members:
        raise RenderError(
            f"{spec.file} pipeline",
            found="networks or models of other names",
            wanted="a pipeline with one network, which a function runs without Triton",
        )
    _refuse_own_packages(spec)
    rendered = _rendered(spec, root, chosen_variant(spec, variant), progress)
    artifact = rendered[0].artifact
    files: dict[str, Content] = {}
    artifact_digests = {artifact.folder / name: digest for name, digest in artifact.files.items()}
    configs = {model.plan.name: _config(model) for model in rendered}
    for model in rendered:
        files |= _model_files(model)
    files |= _engine_files()
    facts = _facts(spec, artifact.variant, configs)
    text = _requirements(files, more)
    files = {f"{FUNCTION}/{path}": content for path, content in (files | _handler()).items()}
    files[f"{FUNCTION}/function.json"] = _json(facts)
    digests = {path: _digest(content, artifact_digests) for path, content in sorted(files.items())}
    files[f"{FUNCTION}/{MANIFEST}"] = _manifest(files, digests)
    files["Dockerfile"] = shipped(f"{_SOURCES}/Dockerfile").read_bytes()
    files["requirements.txt"] = text.encode()
    if example := _example(spec, facts):
        files["example.json"] = _json(example)
    digests |= {path: _digest(files[path], {}) for path in files.keys() - digests.keys()}
    return Bundle(spec.name, artifact.variant, files, digests)


def _refuse_own_packages(spec: Spec) -> None:
    for needed in spec.requirements.values():
        raise RenderError(
            needed.where,
            found="the step has requirements of its own",
            wanted="steps that need only the function's packages: all steps of a function share one Python",
            todo="serve it with Triton, or add them to the function with --requirement",
        )


def _rendered(spec: Spec, root: Path, variant: str, progress: Progress | None) -> list[Rendered]:
    """The Triton models of a spec that is served in this variant by one core."""
    serving = spec.model.serving.model_copy(update={"variant": variant})
    spec = resolve(spec.folder, spec.model.model_copy(update={"serving": serving}), root, entry=spec.entry)
    with _any_x86():
        artifact = build_artifact(root, spec, progress)
    return render_models(spec, artifact, root, "cpu", 1)


@contextlib.contextmanager
def _any_x86() -> Iterator[None]:
    """Make INT8 weights that are right on every CPU: AWS Lambda promises AVX2 only, and lets nobody choose a CPU with
    VNNI."""
    if BITS_VARIABLE in os.environ:
        yield
        return
    os.environ[BITS_VARIABLE] = "7"
    try:
        yield
    finally:
        del os.environ[BITS_VARIABLE]


def _config(rendered: Rendered) -> dict[str, Any]:
    """A model's configuration in JSON, as Triton hands it to a model's Python.

    Raises:
        RenderError: the configuration needs a feature that only Triton has.
    """
    from google.protobuf import json_format

    name = rendered.plan.name
    message = parse_text(rendered.config, f"{name}/config.pbtxt")
    config: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    wrong = (
        "its requests belong to sequences"
        if rendered.plan.sequence_batching
        else "it answers in streams (decoupled)"
        if rendered.plan.decoupled
        else f"its backend is {rendered.plan.backend}"
        if rendered.plan.backend not in (None, "python", _ENGINE)
        else ""
    )
    if wrong:
        raise RenderError(
            f"models/{rendered.artifact.model}",
            found=f"{name}: {wrong}",
            wanted="a network for ONNX Runtime and steps in Python, one answer to a request",
        )
    for tensor in (*config.get("input", []), *config.get("output", [])):
        tensor["dims"] = [int(size) for size in tensor.get("dims", [])]
    # What only Triton does with it.
    for key in ("model_warmup", "instance_group", "dynamic_batching", "version_policy"):
        config.pop(key, None)
    return {"max_batch_size": 0} | config


def _model_files(rendered: Rendered) -> dict[str, Content]:
    """A model's own files; an ensemble has none, because function.json describes it."""
    plan = rendered.plan
    version = {f"models/{plan.name}/{_VERSION}/{n}": p for n, p in plan.version_files.items()}
    beside = {f"models/{plan.name}/{n}": p for n, p in plan.model_files.items()}
    return {**version, **beside} if plan.backend else {}


def _engine_files() -> dict[str, Content]:
    """The stand-in of Triton's onnxruntime backend."""
    folder = shipped(_BACKENDS)
    modules = [*folder.glob("*.py"), *(folder / _ENGINE).glob("*.py")]
    return {f"backend/{file.name}": file for file in sorted(modules)}


def _handler() -> dict[str, Content]:
    """The handler and its package, with the check of the files."""
    folder = shipped(_SOURCES)
    files: dict[str, Content] = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*.py"))}
    integrity = Path(tritonkit.__file__).parent / "repository" / "publish" / "integrity.py"
    return files | {"tritonkit_lambda/integrity.py": integrity}


def _facts(spec: Spec, variant: str, configs: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The content of function.json: the pipeline, its inputs and its outputs."""
    whole = configs[spec.name]
    if "ensemble_scheduling" in whole:
        steps = [
            {"model": step["model_name"], "inputs": step["input_map"], "outputs": step["output_map"]}
            for step in whole["ensemble_scheduling"]["step"]
        ]
    else:
        own = {side: {tensor["name"]: tensor["name"] for tensor in whole[side]} for side in ("input", "output")}
        steps = [{"model": spec.name, "inputs": own["input"], "outputs": own["output"]}]
    models = [
        {"config": config, "backend": config["backend"] == _ENGINE}
        for config in configs.values()
        if "ensemble_scheduling" not in config
    ]
    return {
        "name": spec.name,
        "variant": variant,
        "tritonkit": tritonkit.__version__,
        "max_batch_size": whole["max_batch_size"],
        "inputs": [_tensor(tensor) for tensor in whole["input"]],
        "outputs": [_tensor(tensor) for tensor in whole["output"]],
        "steps": steps,
        "models": models,
    }


def _tensor(entry: Mapping[str, Any]) -> dict[str, Any]:
    datatype = _DATATYPES.get(entry["data_type"], entry["data_type"].removeprefix("TYPE_"))
    return {"name": entry["name"], "datatype": datatype, "dims": entry["dims"]}


def _requirements(files: Mapping[str, Content], more: Sequence[Pin]) -> str:
    """The text for pip; RenderError where two models have different files under one name, as they share a process."""
    python = {path: content for path, content in files.items() if path.endswith(".py") and isinstance(content, Path)}
    modules: dict[str, str] = {}
    for path, file in python.items():
        module = Path(path).stem
        if module == "model":
            continue
        other = modules.setdefault(module, path)
        if other != path and sha256_file(python[other]) != sha256_file(file):
            raise RenderError(
                path,
                found=f"another file of that name is {other}",
                wanted="one module of a name: the models of a function run in one process",
            )
    shipped_pins = pins(shipped(f"{_SOURCES}/requirements.txt").read_text("utf-8"))
    return requirements(python, modules, shipped_pins, more)


def _example(spec: Spec, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """An event with the spec's own examples; None where an input has none."""
    inputs = []
    for tensor in facts["inputs"]:
        example = spec.model.example.get(tensor["name"])
        if example is None:
            return None
        entry = {
            "name": tensor["name"],
            "datatype": tensor["datatype"],
            "shape": [1, 1] if facts["max_batch_size"] else [1],
        }
        if example.file is None:
            inputs.append(entry | {"data": [example.text]})
            continue
        data = resolve_file(example.file, spec, f"example.{tensor['name']}").read_bytes()
        coded = base64.b64encode(data).decode()
        inputs.append(entry | {"parameters": {"content_type": "base64"}, "data": [coded]})
    return {"inputs": inputs}


def _manifest(files: Mapping[str, Content], digests: Mapping[str, str]) -> bytes:
    """The manifest that the function compares its files with at its start."""
    sizes = {
        path: len(content) if isinstance(content, bytes) else content.stat().st_size for path, content in files.items()
    }
    names = {path: path.removeprefix(f"{FUNCTION}/") for path in digests}
    return _json(
        {
            "files": {names[path]: digest for path, digest in digests.items()},
            "sizes": {names[path]: sizes[path] for path in digests},
        }
    )


def _digest(content: Content, digests: Mapping[Path, str]) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    return digests.get(content) or sha256_file(content)


def _json(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode()
