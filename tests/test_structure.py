"""The structure of the whole: rooms, imports, public names, generated files, documented commands."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import tritonkit
from tests import lanes
from tritonkit.moved import MOVED

TOWERS = {
    "client": ["wire", "", "testing"],
    "repository": [
        "modelspec",
        "environments",
        "export",
        "trees",
        "optimize",
        "report",
        "render",
        "publish",
        "pipeline",
        "inspection",
        "python_model",
        "scaffold",
    ],
    "serve": [""],
    "openai": [""],
    "perf": ["load", "simulation", "tune", "plan", "diagnose"],
    "operate": ["", "deploy"],
}
"""The towers and their rooms, each from left to right; "" stands for whatever lies in the tower next to its rooms."""
ROOMS = [(tower, room) for tower, rooms in TOWERS.items() for room in rooms]
GROUND = [
    "datatypes",
    "disk",
    "errors",
    "extras",
    "limits",
    "machine",
    "metrics",
    "moved",
    "option",
    "releases",
    "resources",
    "text",
    "watched",
]
"""Modules that every room may use, and which use no room."""
FACES = ["cli", "testing", "__init__", "__main__"]
"""The command line, and modules that only hand names on."""
PAGES = {"modelspec": "spec", "python_model": "testing", "scaffold": "spec", "load": "measure"}
"""Rooms whose page in docs/ has another name."""
HEAVY = {"torch", "onnx", "onnxruntime", "onnxscript", "safetensors", "transformers", "sklearn"}
SOURCE = Path(tritonkit.__file__).parent


def imports(file: Path) -> set[str]:
    """Every module a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def files_of(name: str) -> list[Path]:
    """The modules of a tower, or one of the ground."""
    file = SOURCE / f"{name}.py"
    return [file] if file.is_file() else list((SOURCE / name).rglob("*.py"))


def room_of(name: str) -> tuple[str, str]:
    """The tower and the room of a module by its dotted name."""
    _, tower, room, *_ = [*name.split("."), "", ""]
    return tower, room if room in TOWERS.get(tower, []) else ""


def test_every_module_is_in_a_tower() -> None:
    """The package holds towers, the ground under them, and faces; a room that is listed exists."""
    modules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert modules == {*TOWERS, *GROUND, *FACES}
    for tower, room in ROOMS:
        assert (SOURCE / tower / room).is_dir() or (SOURCE / tower / f"{room}.py").is_file(), room


def test_the_ground_imports_no_room() -> None:
    """Modules of the ground import one another and nothing else of the package."""
    for file in [file for module in GROUND for file in files_of(module)]:
        taken = {name.split(".")[1] for name in imports(file) if name.startswith("tritonkit.")}
        assert taken <= set(GROUND), file


def test_rooms_import_only_leftwards() -> None:
    """No room imports one to its right, in its tower or another, and none imports a command or the command line."""
    checked = 0
    for tower in TOWERS:
        for file in files_of(tower):
            if "commands" in file.parts:
                continue
            module = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
            if module == f"tritonkit.{tower}" and room_of(module) not in ROOMS:
                continue  # a tower's own module, which has nothing but its docstring
            place = ROOMS.index(room_of(module))
            for name in imports(file):
                if name.startswith("tritonkit."):
                    checked += 1
                    imported, room = room_of(name)
                    assert imported != "cli", f"{file} imports {name}"
                    assert "commands" not in name.split("."), f"{file} imports {name}"
                    if imported in TOWERS:
                        assert ROOMS.index((imported, room)) <= place, f"{file} imports {name}"
    assert checked > 50


def test_http2_could_be_taken_out_whole() -> None:
    """Others import the package `wire/http2` and its public names, never a module of it."""
    public = importlib.import_module("tritonkit.client.wire.http2").__all__
    inside = SOURCE / "client" / "wire" / "http2"
    for file in SOURCE.rglob("*.py"):
        if inside not in file.parents:
            assert not [name for name in imports(file) if name.startswith("tritonkit.client.wire.http2.")], file
            taken = re.findall(r"from tritonkit\.client\.wire\.http2 import (.+)", file.read_text())
            assert {name.strip("() ") for names in taken for name in names.split(",")} <= set(public), file


def test_commands_are_imported_by_the_table_alone() -> None:
    """A tower's commands may import every room, the command line, and one another; nobody else imports them."""
    for file in [*files_of("cli"), *(file for tower in TOWERS for file in (SOURCE / tower / "commands").glob("*.py"))]:
        own = "cli" if file.parent.name == "cli" else f"{file.parent.parent.name}.commands"
        for name in imports(file):
            if ".commands" in name:
                assert name.startswith(f"tritonkit.{own}"), f"{file} imports {name}"
            assert name not in ("tritonkit.cli.app", "tritonkit.cli.lazy") or own == "cli", f"{file} imports {name}"


def test_every_command_is_in_the_table() -> None:
    """The module of each line of the table exists; each module of a tower's commands serves one of its lines."""
    from tritonkit.cli.lazy import COMMANDS

    places = {place.partition(":")[0] for commands in COMMANDS.values() for place, _ in commands.values()}
    for place in places:
        assert (SOURCE / place.replace(".", "/")).with_suffix(".py").is_file(), place
    for tower in TOWERS:
        files = list((SOURCE / tower / "commands").glob("*.py"))
        text = "\n".join(file.read_text() for file in files)
        for file in files:
            is_used = re.search(rf"from tritonkit.{tower}.commands(.{file.stem} import| import [^.]*{file.stem})", text)
            assert f"{tower}.commands.{file.stem}" in places or is_used or file.stem == "__init__", file


def test_heavy_libraries_enter_through_one_door() -> None:
    """Outside of `extras.need`, no module of the package imports a heavy library."""
    for file in SOURCE.rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(file)} & HEAVY, file


def test_what_the_image_copies_needs_nothing_else() -> None:
    """`serve/core` and the check of a repository run with the standard library alone, outside the package."""
    copied = [SOURCE / "repository" / "publish" / name for name in ("integrity.py", "configurations.py")]
    for file in [*(SOURCE / "serve" / "core").glob("*.py"), *copied, SOURCE / "machine.py"]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert {a.name.split(".")[0] for a in node.names} <= sys.stdlib_module_names, file
            elif isinstance(node, ast.ImportFrom):
                name = str(node.module).split(".")[0]
                assert node.level == 1 or name in sys.stdlib_module_names, f"{file} imports {name}"


def test_the_gateway_s_image_has_what_it_imports() -> None:
    """The image has this module and `serve/core` of the package, and nothing else (deploy/docker/Dockerfile)."""
    for name in imports(SOURCE / "operate" / "gateway" / "admin.py"):
        is_core = name.startswith("tritonkit.serve.core.")
        assert is_core or name.split(".")[0] in sys.stdlib_module_names, name


def python(code: str) -> str:
    """Run code in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_is_light() -> None:
    """`import tritonkit` loads no numpy, no gRPC, no pydantic; the rooms load nothing heavy."""
    loaded = "import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    package = set(python(f"import tritonkit; {loaded}").split())
    assert not package & (HEAVY | {"numpy", "grpc", "tritonclient", "pydantic", "yaml", "jinja2"})
    everything = "; ".join(f"import tritonkit.{'.'.join(filter(None, room))}" for room in ROOMS)
    rooms = set(python(f"{everything}; {loaded}").split())
    assert not rooms & (HEAVY | {"grpc", "tritonclient"})


def test_importing_the_command_line_is_light() -> None:
    """`import tritonkit.cli` loads no room and nothing heavy: each command imports what it uses."""
    loaded = set(python("import sys, tritonkit.cli; print(*sys.modules)").split())
    assert not loaded & (HEAVY | {"numpy", "grpc", "tritonclient", "pydantic", "yaml", "jinja2"})
    assert not loaded & {f"tritonkit.{tower}" for tower in TOWERS}


def modules() -> list[str]:
    """Every module of the package."""
    infos = pkgutil.walk_packages([str(SOURCE)], "tritonkit.")
    return [info.name for info in infos if not info.name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_public_names_exist(name: str) -> None:
    """Each module says what is public in `__all__`, and each of those names is there, once."""
    with warnings.catch_warnings():
        # A module under an old name says so when it is imported.
        warnings.filterwarnings("ignore", "tritonkit", DeprecationWarning)
        module = importlib.import_module(name)
    public = module.__all__
    assert len(set(public)) == len(public)
    for item in public:
        assert hasattr(module, item), f"{name}.{item}"


def test_the_root_gives_its_public_names() -> None:
    """`from tritonkit import Client` works, and an unknown name is an AttributeError."""
    assert {getattr(tritonkit, name) is not None for name in tritonkit.__all__} == {True}
    with pytest.raises(AttributeError, match="no_such_name"):
        tritonkit.no_such_name  # noqa: B018


def test_the_version_is_one(project: Path) -> None:
    """pyproject.toml, the package and the changelog agree."""
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"]
    assert tritonkit.__version__ == declared
    assert f"## {declared}" in (project / "CHANGELOG.md").read_text()


def test_a_class_name_has_one_meaning() -> None:
    """No two modules of the package define a public class of the same name."""
    places: dict[str, list[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def shell_lines(text: str) -> list[str]:
    """The commands of a page's shell blocks."""
    blocks = re.findall(r"```(?:sh|console|bash)\n(.*?)```", text, re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line and not line.startswith("#")]


def test_the_readme_starts_with_what_ci_runs(project: Path) -> None:
    """The commands of the README's first block are lines of `.ci/run`, and it calls no target that is not there."""
    first = shell_lines((project / "README.md").read_text())[:2]
    ci = (project / ".ci" / "run").read_text()
    assert first == ["make demo", "make test"]
    assert set(first) <= set(ci.splitlines())
    assert set(re.findall(r"\bmake ([a-z-]+)", ci)) <= targets(project)


def targets(project: Path) -> set[str]:
    """The targets of the Makefile."""
    lines = re.findall(r"^([a-z -]+):", (project / "Makefile").read_text(), re.MULTILINE)
    return {target for line in lines for target in line.split()}


def test_the_folders_of_tests_that_make_names_exist(project: Path) -> None:
    """A folder that was moved is not left out of a run without a word."""
    text = (project / "Makefile").read_text()
    named = [name.rstrip(".") for name in re.findall(r"tests/[\w/.]+", text)]
    for prefix, names in re.findall(r"\$\(addprefix (tests/[\w/]*),([^)]*)\)", text):
        named += [prefix + name for name in names.replace("\\\n", " ").split()]
    assert len(named) > 5
    for name in named:
        assert (project / name).exists(), name


def test_the_places_of_the_lanes_of_tests_exist(project: Path) -> None:
    """A room that was moved still calls for its lanes, and a folder of tests is still run."""
    table = lanes.load()
    for lane in table.lanes.values():
        for place in (*lane.paths, *lane.rooms):
            assert (project / place).exists(), f"tests/lanes.toml: {lane.name}: {place}"
    for place in table.ground:
        assert list(project.glob(place)), place


def test_commands_in_the_documentation_exist(project: Path) -> None:
    """Every `tritonkit ...` and `make ...` of the pages is a command there is."""
    from tritonkit.cli.lazy import COMMANDS

    names = {name for commands in COMMANDS.values() for name in commands}
    for page in [project / "README.md", project / "ARCHITECTURE.md", *(project / "docs").glob("*.md")]:
        for line in shell_lines(page.read_text()):
            words = line.split()
            if words[0].endswith("tritonkit"):
                assert words[1] in names or words[1].startswith("-"), f"{page.name}: {line}"
            if words[0] == "make":
                assert words[1] in targets(project), f"{page.name}: {line}"


def test_required_top_level_entries_are_there(project: Path) -> None:
    """The entries people expect of the project exist."""
    for name in ("model_repository", "python_backends", "tools", "tests", "pyproject.toml", "LICENSE"):
        assert (project / name).exists(), name


def test_documentation_has_a_page_per_room(project: Path) -> None:
    """Each tower that stands alone and each room that is a folder has its page."""
    names = {room or tower for tower, room in ROOMS if (SOURCE / tower / room).is_dir()}
    for name in names:
        assert (project / "docs" / f"{PAGES.get(name, name)}.md").is_file(), name


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_still_imports(old: str) -> None:
    """Packages of version 0.1.0 are the very modules that have new names now, and say so."""
    with pytest.warns(DeprecationWarning, match=f"tritonkit.{MOVED[old]} since version 0.2"):
        module = importlib.import_module(f"tritonkit.{old}")
    assert module is importlib.import_module(f"tritonkit.{MOVED[old]}")
    sys.modules.pop(f"tritonkit.{old}")


def test_a_module_below_an_old_name_is_the_same_one() -> None:
    """No class exists twice, and a module that never was is not found."""
    output = python(
        "import warnings; warnings.simplefilter('ignore'); from tritonkit.measure.openloop.slo import Slo as old;"
        " from tritonkit.perf.load.openloop.slo import Slo as new; print(old is new)"
    )
    assert output == "True"
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        importlib.import_module("tritonkit.no_such")


OPENED = {
    r"\.compile_model\(": {"repository/optimize/openvino_core.py", "openvino/openvino_engine.py"},
    r"ContinuousBatchingPipeline\(": {"repository/optimize/llm/convert.py", "llm/llm_engine.py"},
    # onnx_fp16.py only loads the file, and int8_cpu.py computes with whole numbers.
    r"\.SessionOptions\(\)": {
        "repository/export/onnx_file.py",
        "onnxruntime/onnxruntime_config.py",
        "repository/optimize/variants/onnx_fp16.py",
    },
    r"\.InferenceSession\(": {
        "repository/export/onnx_file.py",
        "onnxruntime/onnxruntime_network.py",
        "repository/optimize/variants/int8_cpu.py",
        "repository/optimize/variants/onnx_fp16.py",
    },
}


@pytest.mark.parametrize("call", OPENED)
def test_networks_are_opened_where_the_precision_is_set(call: str, project: Path) -> None:
    """Once in each environment: an engine that is left to itself may compute in bfloat16."""
    roots = (SOURCE, project / "python_backends" / "backends")
    places = {
        str(file.relative_to(root))
        for root in roots
        for file in root.rglob("*.py")
        if re.search(call, file.read_text())
    }
    assert places == OPENED[call]
