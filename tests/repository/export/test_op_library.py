"""Libraries of custom operators: which are refused and how, and that a spec's own sessions alone know them."""

from __future__ import annotations

import platform
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.custom_operators import LIBRARY, WriteLibrary, scaled, scaled_network
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.elf import MACHINES, read_library
from tritonkit.repository.export.onnx_file import open_session
from tritonkit.repository.export.op_library import operators_of
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.modelspec import Spec, load
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.modelspec.contents import python_uses
from tritonkit.repository.optimize.results import choose, evaluate
from tritonkit.repository.optimize.variants import TARGETS
from tritonkit.repository.pipeline import build_repository

NETWORK = f"{{name: net, network: {{onnx: net.onnx, op_library: {LIBRARY}}}}}"
MACHINE = 18
"""Place of the processor's number in a library."""


def written(write_model: WriteModel, folder: Path, content: bytes = b"", text: str = NETWORK) -> Spec:
    """A model with a library of that content."""
    (folder / LIBRARY).parent.mkdir(parents=True, exist_ok=True)
    if content:
        (folder / LIBRARY).write_bytes(content)
    (folder / "net.onnx").write_bytes(scaled_network())
    return write_model(text)


def of_another_processor(library: Path) -> bytes:
    """The library with the number of a processor that is not this machine's."""
    content = bytearray(library.read_bytes())
    content[MACHINE] = next(number for number, name in MACHINES.items() if name != platform.machine())
    return bytes(content)


def test_the_operators_are_known_in_the_block_alone(
    write_model: WriteModel, root: Path, write_library: WriteLibrary, random: np.random.Generator
) -> None:
    """Another spec, or the same one later, does not have them."""
    folder = root / "models" / "net"
    write_library(folder)
    spec = written(write_model, folder)
    x = random.standard_normal((3, 4), np.float32)
    with operators_of(spec):
        session = open_session(folder / "net.onnx", "net")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], scaled(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(BuildError, match=r"(?s)custom operator tests\.Scale.*network: \{op_library: FILE\.so\}"):
        open_session(folder / "net.onnx", "net")


@pytest.mark.parametrize("content", [b"an archive, perhaps", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + bytes(60)])
def test_a_file_that_is_no_library_is_refused(write_model: WriteModel, root: Path, content: bytes) -> None:
    """Text, a header that breaks off, and a library of 32 bits."""
    spec = written(write_model, root / "models" / "net", content)
    with (
        pytest.raises(BuildError, match=r"network\.op_library: libscale\.so \(\d+ bytes\) is not a shared library"),
        operators_of(spec),
    ):
        pass


def test_a_library_for_another_processor_is_refused(
    write_model: WriteModel, root: Path, write_library: WriteLibrary, tmp_path: Path
) -> None:
    """Both processors are named."""
    spec = written(write_model, root / "models" / "net", of_another_processor(write_library(tmp_path)))
    with (
        pytest.raises(BuildError, match=rf"libscale\.so is for \w+, and this machine is {platform.machine()}"),
        operators_of(spec),
    ):
        pass


@pytest.mark.parametrize(
    ("flag", "found"),
    [
        ("-DNO_ENTRY", r"libscale\.so has no function RegisterCustomOps"),
        ("-DNEEDS_PYTHON", r"a module for Python: it needs PyErr_CheckSignals"),
        ("-DREFUSES", r"ONNX Runtime \S+ cannot load libscale\.so: no license for these operators"),
    ],
)
def test_a_library_that_a_server_cannot_load_is_refused(
    write_model: WriteModel, root: Path, write_library: WriteLibrary, flag: str, found: str
) -> None:
    """The place in model.yaml, and the reason."""
    folder = root / "models" / "net"
    write_library(folder, flag)
    spec = written(write_model, folder)
    with pytest.raises(BuildError, match=rf"model\.yaml network\.op_library: .*{found}"), operators_of(spec):
        open_session(folder / "net.onnx", "net")


def test_a_damaged_table_of_symbols_is_left_to_the_loader(tmp_path: Path, write_library: WriteLibrary) -> None:
    """Cut off behind the header, a library has a processor and no symbols that are known."""
    file = write_library(tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    library = read_library(file)
    assert library is not None
    assert library.defined is None
    assert library.machine == platform.machine()


def test_names_without_an_end_are_read_in_part(tmp_path: Path) -> None:
    """Each symbol would otherwise have a copy of all that follows in the table."""
    names = b"a" * 100_000
    symbols = b"".join(struct.pack("<IBBHQQ", place, 0, 0, 1, 0, 0) for place in range(9))
    start = 64 + len(symbols) + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 3, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 2, 0)
    tables = [(11, 64, len(symbols), 1), (3, 64 + len(symbols), len(names), 0)]
    sections = [struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, *place, 0, 0, 0) for kind, *place in tables]
    (tmp_path / LIBRARY).write_bytes(b"".join([header, symbols, names, *sections]))
    library = read_library(tmp_path / LIBRARY)
    assert library is not None
    assert library.defined == {"a" * 256}


def test_an_operator_that_no_library_has_is_named(
    write_model: WriteModel, root: Path, write_library: WriteLibrary
) -> None:
    """The message has the libraries that were looked into."""
    folder = root / "models" / "net"
    write_library(folder)
    spec = written(write_model, folder)
    (folder / "net.onnx").write_bytes(scaled_network("Other"))
    with (
        pytest.raises(BuildError, match=r"tests\.Other, which is neither in ONNX Runtime \S+ nor in libscale\.so"),
        operators_of(spec),
    ):
        open_session(folder / "net.onnx", "net")


@pytest.mark.parametrize(
    ("network", "found"),
    [
        ("onnx: net.onnx, op_library: missing.so", "there is no file 'missing.so'"),
        ("onnx: net.onnx, op_library: ../libscale.so", "leaves the model's folder"),
        ("onnx: net.onnx, op_library: [], fill: {}", "op_library"),
        ("python: model.py, op_library: net.onnx", "op_library belongs to onnx"),
        (f"onnx: net.onnx, op_library: [{LIBRARY}, more/{LIBRARY}]", "op_library has libscale.so twice"),
    ],
)
def test_a_library_has_its_place_in_the_spec(write_model: WriteModel, root: Path, network: str, found: str) -> None:
    """A path inside of the folder, next to an ONNX file."""
    with pytest.raises(SpecError, match=found):
        written(write_model, root / "models" / "net", text=f"{{name: net, network: {{{network}}}}}")


@pytest.mark.parametrize("name", ["model.onnx", "artifact.json"])
def test_a_library_with_the_name_of_another_file_is_refused(
    write_model: WriteModel, root: Path, write_library: WriteLibrary, name: str
) -> None:
    """All files lie in one version folder: the network, and those that the build writes."""
    folder = root / "models" / "net"
    write_library(folder, name=name)
    spec = written(write_model, folder, text=NETWORK.replace(LIBRARY, name))
    with pytest.raises(BuildError, match=rf"network\.op_library: {name}, and another file"):
        choose(spec, evaluate(spec, ["onnx-fp32"], BuildCache(root / "cache")))


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_a_link_to_a_library_is_published_under_its_own_name(
    write_model: WriteModel, root: Path, write_library: WriteLibrary, target: Target
) -> None:
    """A library with a version in its name is usually named by a link; the configuration has the link's name."""
    folder = root / "models" / "net"
    library = write_library(folder, name=f"{LIBRARY}.1")
    (folder / LIBRARY).symlink_to(library.name)
    written(write_model, folder)
    published = build_repository(root, target=target, cores=2).path / "net"
    place = published / LIBRARY if target == "nvidia" else published / "1" / LIBRARY
    assert place.read_bytes() == library.read_bytes()
    named = f"/models/net/{LIBRARY}" if target == "nvidia" else LIBRARY
    assert f'op_library_filename: "{named}"' in (published / "config.pbtxt").read_text()


def test_a_look_runs_nothing_of_a_library(write_model: WriteModel, root: Path) -> None:
    """The plan for each target is known before a build."""
    folder = root / "models" / "net"
    written(write_model, folder, b"no library")
    for target in TARGETS:
        inspection = inspect_model(load(folder, root, target), target, 2)
        assert not inspection.unknown
        assert [plan.name for plan in inspection.models] == ["net"]


def test_a_library_is_listed_as_code(write_model: WriteModel, root: Path, write_library: WriteLibrary) -> None:
    """It runs in a build and in the server."""
    folder = root / "models" / "net"
    write_library(folder)
    uses = python_uses(written(write_model, folder))
    assert [(use.file, use.when) for use in uses] == [(LIBRARY, "build"), (LIBRARY, "server")]


SAMPLES = """
import numpy as np


def samples():
    return [{"x": np.random.default_rng(1).standard_normal((16, 4), np.float32)} for _ in range(2)]


def calibration():
    return [{"x": np.random.default_rng(2).standard_normal((16, 4), np.float32)} for _ in range(4)]
"""


@pytest.mark.slow
def test_forms_of_onnx_runtime_keep_the_operators(
    write_model: WriteModel, root: Path, write_library: WriteLibrary
) -> None:
    """Forms that it makes and runs are published with the library; other engines are refused with the reason."""
    folder = root / "models" / "net"
    write_library(folder)
    (folder / "data.py").write_text(SAMPLES)
    more = 'quality: {samples: "data:samples"}, optimize: {calibration: "data:calibration"}'
    spec = written(write_model, folder, text=NETWORK.replace("}}", "}, " + more + "}"))
    names = ["onnx-fp32", "onnx-bf16", "onnx-int8-dynamic", "onnx-int8-static", "openvino-fp32", "tensorrt-fp32"]
    names.append("onnx-fp16")
    results = {result.variant: result for result in evaluate(spec, names, BuildCache(root / "cache"))}
    for name in names[:4]:
        result = results[name]
        assert result.passed, result.problem
        assert result.artifact is not None
        assert LIBRARY in result.artifact.files
    # Types that follow from a custom operator are not known.
    assert "no operator that could be FP16" in str(results["onnx-fp16"].problem)
    for name in names[4:6]:
        assert "whose operators are ONNX Runtime's alone" in str(results[name].problem)
