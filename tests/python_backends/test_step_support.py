"""Parts that the steps share: parameters, files, and the contract in step.yaml."""

import importlib
import importlib.util
import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from step_support import Step, settings_from

STEPS = Path(__file__).parents[2] / "python_backends" / "steps"
NAMES = sorted(path.parent.name for path in STEPS.glob("*/step.yaml"))


@dataclass(frozen=True)
class Example:
    """One field of each type."""

    count: int = 1
    factor: float = 1.0
    name: str = ""
    on: bool = False
    many: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()


def test_parameters_are_parsed_by_field_type() -> None:
    """Texts become values, unknown parameters are left alone, missing ones keep the default."""
    texts = {"count": "3", "factor": "1e-2", "on": "true", "many": "1, 2.5", "OTHER": "x"}
    assert settings_from(Example, texts) == Example(3, 0.01, "", True, (1.0, 2.5))
    assert settings_from(Example, {"lengths": "16,32"}).lengths == (16, 32)
    assert settings_from(Example, {"on": "0", "lengths": ""}) == Example()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("count", "3.5", "int"), ("factor", "x", "float"), ("on", "yes", "bool"), ("many", "1,b", "float")],
)
def test_text_of_another_type_is_refused(name: str, text: str, expected: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=f"parameter {name}: found .*, wanted {expected}"):
        settings_from(Example, {name: text})


def step_with(folder: Path, value: str) -> Step:
    """A step whose parameter `labels` is `value`."""
    config = {"max_batch_size": 1, "parameters": {"labels": {"string_value": value}}}
    return Step(
        {"model_config": json.dumps(config), "model_name": "m", "model_repository": str(folder), "model_version": "2"}
    )


def test_file_is_found_in_the_version_then_in_the_model(tmp_path: Path) -> None:
    """`place: version` and `place: model` are both found by the bare name."""
    (tmp_path / "2").mkdir()
    (tmp_path / "labels.txt").touch()
    assert step_with(tmp_path, "labels.txt").file("labels") == tmp_path / "labels.txt"
    (tmp_path / "2" / "labels.txt").touch()
    assert step_with(tmp_path, "labels.txt").file("labels") == tmp_path / "2" / "labels.txt"


@pytest.mark.parametrize("value", ["", "no.txt", "../secret", "/etc/passwd", ".."])
def test_other_files_are_refused(value: str, tmp_path: Path) -> None:
    """No name, no such file, and paths that leave the model's folder."""
    with pytest.raises(ValueError, match="parameter labels"):
        step_with(tmp_path / "m", value).file("labels")


def contract(name: str) -> dict[str, Any]:
    """A step.yaml as data."""
    parsed: dict[str, Any] = yaml.safe_load((STEPS / name / "step.yaml").read_text())
    return parsed


@pytest.mark.parametrize("name", NAMES)
def test_contract_and_settings_agree(name: str) -> None:
    """Every parameter in step.yaml but files is a setting with the same default, and the reverse."""
    settings = importlib.import_module(f"{name}_core").Settings
    written = {key: parameter for key, parameter in contract(name)["parameters"].items() if parameter["type"] != "file"}
    required = {key: "1" for key, parameter in written.items() if parameter.get("required")}
    assert set(written) == {field.name for field in fields(settings)}
    for field in fields(settings):
        default = written[field.name].get("default")
        if field.name in required:
            assert field.default is MISSING
        elif str(default).startswith("$"):  # another parameter's value, which the configuration always has
            assert field.default == 0
        else:
            text = ",".join(map(str, default)) if isinstance(default, list) else str(default)
            parsed = settings_from(settings, {**required, field.name: text})
            assert getattr(parsed, field.name) == field.default


@pytest.mark.parametrize("name", NAMES)
def test_contract_is_well_formed(name: str) -> None:
    """Known keys and types only, a help text each, and dims that are numbers or int parameters."""
    step = contract(name)
    assert set(step) - {"keeps_sequences", "windows"} == {"description", "parameters", "inputs", "outputs"}
    for parameter in step["parameters"].values():
        assert set(parameter) <= {"type", "place", "default", "required", "minimum", "max_mib", "choices", "help"}
        assert parameter["type"] in {"int", "float", "str", "bool", "file", "floats", "ints", "tensors"}
        assert parameter["help"]
        assert ("default" in parameter) != parameter.get("required", False)
        assert (parameter["type"] == "file") == ("place" in parameter)
    tensors = (*step["inputs"].values(), *step["outputs"].values())
    for tensor in (form for forms in tensors for form in (forms if isinstance(forms, list) else [forms])):
        if tensor["dtype"].startswith("$"):
            assert step["parameters"][tensor["dtype"][1:]]["choices"]
        for dim in tensor["shape"]:
            named = isinstance(dim, str) and step["parameters"][dim.removeprefix("$")]
            assert isinstance(dim, int) or named["type"] == "int"


@pytest.mark.parametrize("name", NAMES)
def test_adapters_can_be_imported(name: str) -> None:
    """The names that a model.py takes from the modules of its own and of other steps exist."""
    spec = importlib.util.spec_from_file_location(f"{name}_model", STEPS / name / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TritonPythonModel.__doc__
