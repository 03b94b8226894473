"""Reading a model repository: which models, in which order, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.models import VECTOR, ModelText, ensemble, write_repository
from tritonkit.errors import ServerStartError, UsageError
from tritonkit.serve.repository import check_files, check_unpadded, parse_config, read_models
from tritonkit.serve.selection import select


def names(repository: Path, *requested: str) -> list[str]:
    """The names that serving `requested` comes to."""
    return [model.name for model in read_models(repository, requested or None)]


def test_everything_is_served_by_default(tmp_path: Path) -> None:
    """All folders with a config.pbtxt count, and each comes after what it calls; others do not."""
    write_repository(tmp_path, {"a_both": ensemble("x", "y"), "x": ModelText(), "y": ModelText()})
    (tmp_path / ".staging" / "half").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    assert names(tmp_path) == ["x", "y", "a_both"]


def test_an_ensemble_brings_its_parts_through_other_ensembles(tmp_path: Path) -> None:
    """The parts of parts are found too, once each."""
    write_repository(
        tmp_path,
        {
            "x": ModelText(),
            "y": ModelText(),
            "unused": ModelText(),
            "inner": ensemble("x", "y"),
            "outer": ensemble("inner", "x"),
        },
    )
    assert names(tmp_path, "outer", "x") == ["x", "y", "inner", "outer"]


def test_ensembles_in_a_circle_end(tmp_path: Path) -> None:
    """Two that call each other are read; Triton refuses them."""
    write_repository(tmp_path, {"one": ensemble("two"), "two": ensemble("one")})
    assert set(names(tmp_path, "one")) == {"one", "two"}


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    """A misspelled model is the caller's mistake, and what was meant is said."""
    write_repository(tmp_path, {"digits": ModelText()})
    with pytest.raises(UsageError, match="'digits'"):
        read_models(tmp_path, ["digts"])


@pytest.mark.parametrize("folder", ["missing", "."])
def test_a_folder_without_models_is_a_mistake(tmp_path: Path, folder: str) -> None:
    """No such folder, or none with models: build first."""
    with pytest.raises(UsageError, match="tritonkit build"):
        read_models(tmp_path / folder)


def test_a_missing_part_names_the_ensemble(tmp_path: Path) -> None:
    """The file to look at is the ensemble's, not the missing one."""
    write_repository(tmp_path, {"net": ModelText(), "both": ensemble("net", "nit")})
    with pytest.raises(ServerStartError, match=r"both/config\.pbtxt.*'nit'") as caught:
        read_models(tmp_path)
    assert "'net'" in caught.value.wanted


@pytest.mark.parametrize("text", [b"max_batch_size: many", b"nonsense: 1", b"\xff"])
def test_what_is_no_configuration_is_told(tmp_path: Path, text: bytes) -> None:
    """The file is named, whatever is wrong with it."""
    file = tmp_path / "config.pbtxt"
    file.write_bytes(text)
    with pytest.raises(ServerStartError, match=r"config\.pbtxt"):
        parse_config(file)


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("", (12,)),
        ("version_policy { latest { num_versions: 2 } }", (3, 12)),
        ("version_policy { all { } }", (1, 3, 12)),
        ("version_policy { specific { versions: [1, 7] } }", (1,)),
    ],
)
def test_the_policy_decides_which_versions_count(tmp_path: Path, policy: str, versions: tuple[int, ...]) -> None:
    """Numbers are compared as numbers; folders of other names are no versions."""
    write_repository(tmp_path, {"net": ModelText(f'backend: "python"\n{VECTOR}{policy}\n')})
    for name in ("3", "12", "warmup", "1.staged"):
        (tmp_path / "net" / name).mkdir()
    (model,) = read_models(tmp_path)
    assert model.versions == versions


def test_a_served_version_needs_its_python(tmp_path: Path) -> None:
    """The file that Triton would wait for is named; a version that is not served does not matter."""
    write_repository(tmp_path, {"net": ModelText()})
    (tmp_path / "net" / "0").mkdir()
    (model,) = read_models(tmp_path)
    check_files(model)
    (tmp_path / "net" / "2").mkdir()
    (model,) = read_models(tmp_path)
    with pytest.raises(ServerStartError, match=r"net/2/model\.py"):
        check_files(model)


def test_a_model_needs_a_version(tmp_path: Path) -> None:
    """A folder with a configuration alone cannot be served."""
    write_repository(tmp_path, {"net": ModelText(code=None)})
    (tmp_path / "net" / "1").rmdir()
    (model,) = read_models(tmp_path)
    with pytest.raises(ServerStartError, match="no version"):
        check_files(model)


def test_what_nvidias_backends_cannot_pad_is_named(tmp_path: Path, project: Path) -> None:
    """A model rendered for tritonkit's backends; one that was not is left alone."""
    write_repository(tmp_path, {"plain": ModelText()})
    check_unpadded(read_models(tmp_path))
    golden = project / "tests" / "repository" / "render" / "golden" / "padded_lengths.pbtxt"
    (tmp_path / "padded_lengths").mkdir()
    (tmp_path / "padded_lengths" / "config.pbtxt").write_text(golden.read_text())
    with pytest.raises(ServerStartError, match=r"model padded_lengths.*cannot pad") as refused:
        check_unpadded(read_models(tmp_path))
    assert "tritonkit build --target nvidia" in str(refused.value)


def test_a_configuration_of_the_asked_name_is_read(tmp_path: Path) -> None:
    """Models without it keep theirs, as in Triton."""
    write_repository(tmp_path, {"own": ModelText(), "other": ModelText()})
    file = tmp_path / "own" / "configs" / "cores-1.pbtxt"
    file.parent.mkdir()
    file.write_text((tmp_path / "own" / "config.pbtxt").read_text() + "\ninstance_group { count: 7 }\n")

    def counts(config: str) -> dict[str, int]:
        models = read_models(tmp_path, config=config)
        return {model.name: sum(g.count for g in model.config.instance_group) for model in models}

    assert counts("cores-1")["own"] >= 7
    assert counts("cores-1")["other"] == counts("")["other"] == counts("cores-2")["own"]


CALLER = """import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceRequest(model_name="leaf").exec(), pb.InferenceRequest(model_name="absent").exec()]
"""


def called(names: str) -> ModelText:
    """A Python model whose configuration names the models that it calls."""
    text = f'parameters {{ key: "tritonkit.calls" value {{ string_value: "{names}" }} }}\n'
    return ModelText(ModelText().config + text, CALLER)


def test_what_a_python_model_calls_comes_before_it(tmp_path: Path) -> None:
    """Names written out in its file, where the repository has them; those of its configuration instead, all of which
    must be there."""
    models = {"a_caller": ModelText(code=CALLER), "leaf": ModelText(), "twig": ModelText()}
    write_repository(tmp_path / "a", models)
    assert names(tmp_path / "a", "a_caller") == ["leaf", "a_caller"]
    write_repository(tmp_path / "b", {**models, "a_caller": called("twig")})
    assert names(tmp_path / "b", "a_caller") == ["twig", "a_caller"]
    write_repository(tmp_path / "c", {**models, "a_caller": called("")})
    assert names(tmp_path / "c", "a_caller") == ["a_caller"]
    write_repository(tmp_path / "d", {**models, "a_caller": called("twgi")})
    with pytest.raises(ServerStartError, match=r"a_caller/config\.pbtxt.*calls the model 'twgi'") as caught:
        read_models(tmp_path / "d", ["a_caller"])
    assert "'twig'" in caught.value.wanted


def test_a_model_that_cannot_be_read_takes_none_but_its_callers_with_it(tmp_path: Path) -> None:
    """An ensemble of it and a model that says it calls it are refused; one whose file names it may never call it."""
    write_repository(
        tmp_path,
        {
            "good": ModelText(),
            "leaf": ModelText("nonsense: 1"),
            "over": ensemble("leaf"),
            "says": called("leaf"),
            "writes": ModelText(code=CALLER),
        },
    )
    refused: dict[str, ServerStartError] = {}
    models = read_models(tmp_path, refused=refused)
    assert [model.name for model in models] == ["good", "writes"]
    assert sorted(refused) == ["leaf", "over", "says"]


def test_a_server_does_without_what_cannot_be_served(tmp_path: Path) -> None:
    """Unless it is required, with all that it needs, or nothing is left that callers want."""
    parts = {"net": ModelText(), "both": ensemble("net"), "other": ModelText()}
    write_repository(tmp_path, parts)
    wrong = ServerStartError("model net", found="wrong")

    def lacks(*require: str, named: tuple[str, ...] | None = None, gone: str = "net") -> list[str]:
        chosen = select(read_models(tmp_path, named), {}, named, require).without(gone, wrong)
        return sorted(chosen.lacks(chosen.refused))

    assert lacks() == []
    assert lacks("both") == ["both", "net"]
    assert lacks("other") == []
    assert lacks("other", gone="other") == ["other"]
    assert lacks("all", gone="other") == ["other"]
    assert lacks(named=("both",)) == ["both", "net"]
    with pytest.raises(UsageError, match="--require oter"):
        lacks("oter")
