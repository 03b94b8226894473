"""A repository is checked against its manifests: every change by a disk, a copy or a hand is found."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.repository.publish.damaging import flip
from tests.repository.publish.test_publish import HEADER, rendered
from tritonkit.repository.modelspec import VersionPolicy
from tritonkit.repository.publish import Damage, Verifier, copy_models, integrity, replace_models, verify
from tritonkit.repository.publish.damage import damage
from tritonkit.repository.publish.integrity import Totals, foreign
from tritonkit.repository.publish.publish import publish

CONTENT = b"weights" * 1000


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A repository of two models as they were published."""
    folder = tmp_path / "repository"
    publish(folder, [rendered(tmp_path / n, CONTENT, n) for n in ("net", "other")])
    return folder


def test_what_was_published_is_whole(out: Path) -> None:
    """There is no damage, every file was hashed, and progress ends at the total."""
    reports: list[tuple[int, int]] = []
    totals = Totals()
    assert verify(out, progress=lambda *figures: reports.append(figures), totals=totals) == []
    assert (totals.models, totals.files) == (2, 6)
    assert reports[-1] == (totals.size_bytes, totals.size_bytes)
    assert totals.size_bytes > 2 * len(CONTENT)


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a flipped bit of the weights": (lambda net: flip(net / "1" / "model.onnx"), "1/model.onnx", "of 7000 bytes"),
    "a weight file cut short": (lambda net: os.truncate(net / "1" / "model.onnx", 10), "1/model.onnx", "10 bytes"),
    "no weight file": (lambda net: (net / "1" / "model.onnx").unlink(), "1/model.onnx", "missing"),
    "an edited config": (
        lambda net: (net / "config.pbtxt").write_text(HEADER + 'name: "net"\n#'),
        "config.pbtxt",
        "bytes",
    ),
    "other warm-up data": (lambda net: (net / "warmup" / "sample").write_bytes(b"WARM"), "warmup/sample", "sha256"),
    "an unknown file in the version": (
        lambda net: (net / "1" / "model.plan").write_text("x"),
        "1/model.plan",
        "it was not published",
    ),
    "an unknown module next to it": (
        lambda net: (net / "numpy.py").write_text("x"),
        "numpy.py",
        "it was not published",
    ),
    "an unknown folder": (
        lambda net: ((net / "1" / "sub").mkdir(), (net / "1" / "sub" / "a.py").write_text("x")),
        "1/sub/a.py",
        "it was not published",
    ),
    "a link to a folder": (
        lambda net: (net / "1" / "sub").symlink_to("/tmp"),  # noqa: S108
        "1/sub",
        "it was not published",
    ),
    "a pipe for a file": (
        lambda net: ((net / "1" / "model.onnx").unlink(), os.mkfifo(net / "1" / "model.onnx")),
        "1/model.onnx",
        "not a file",
    ),
    "no manifest of the version": (
        lambda net: (net / "1" / "manifest.json").unlink(),
        "1/manifest.json",
        "none that can be read",
    ),
    "no manifest of the model": (
        lambda net: (net / "manifest.json").unlink(),
        "manifest.json",
        "none that can be read",
    ),
    "a manifest that is not one": (
        lambda net: (net / "1" / "manifest.json").write_text('{"files": [1]}'),
        "1/manifest.json",
        "none that can be read",
    ),
    "no version": (lambda net: shutil.rmtree(net / "1"), "", "no version"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(out: Path, kind: str) -> None:
    """The finding has the model, the file, what was found and what to do; the other model has none."""
    do, file, message = DAMAGE[kind]
    do(out / "net")
    [finding] = verify(out)
    assert (finding.model, finding.file) == ("net", out / "net" / file)
    assert message in finding.found
    assert finding.wanted
    assert "tritonkit build" in finding.todo
    assert verify(out, ["other"]) == []


@pytest.mark.parametrize("name", ["../other/1/model.onnx", "/etc/hostname", "a/../../b", ""])
def test_a_manifest_leads_nowhere_else(out: Path, name: str) -> None:
    """Names in it that leave the folder are findings, and what they point at is not read."""
    place = out / "net" / "1" / "manifest.json"
    facts = json.loads(place.read_text())
    facts["files"][name] = "0" * 64
    place.write_text(json.dumps(facts))
    [finding] = verify(out)
    assert finding.file == place
    assert repr(name) in finding.found


def test_only_what_is_served_counts(out: Path, tmp_path: Path) -> None:
    """The configuration's policy decides: the latest versions, all, or the named ones."""
    for content in (b"two", b"three"):
        publish(out, [rendered(tmp_path / "net", content, "net", VersionPolicy(all=True))])
    for number in (1, 2, 3):
        flip(out / "net" / str(number) / "model.onnx")
    config = out / "net" / "config.pbtxt"
    for policy, served in (
        ("version_policy { latest { num_versions: 1 } }", {"3"}),
        ("version_policy {\n  latest {\n    num_versions: 2\n  }\n}", {"2", "3"}),
        ("version_policy { all { } }", {"1", "2", "3"}),
        ("version_policy { specific { versions: [1, 3] } }", {"1", "3"}),
        ("", {"3"}),
    ):
        config.write_text(HEADER + policy)
        weights = [f for f in verify(out, ["net"]) if f.file.name == "model.onnx"]
        assert {finding.file.parent.name for finding in weights} == served, policy


def test_what_no_server_reads_is_left_alone(out: Path) -> None:
    """Hidden files are ignored."""
    (out / "net" / ".staging").mkdir()
    (out / "net" / ".staging" / "x").write_text("x")
    (out / "net" / ".gitkeep").touch()
    assert verify(out) == []


BEFORE_ITS_SOURCE = (
    "1/__pycache__/model.cpython-311.pyc",
    "__pycache__/helper.cpython-312.opt-1.pyc",
    "1/model.pyc",
    "1/model.cpython-311-x86_64-linux-gnu.so",
    "1/model.abi3.so",
    "1/model/__init__.py",
    "1/numpy.py",
    "1/triton_python_backend_utils.py",
)


@pytest.mark.parametrize("name", BEFORE_ITS_SOURCE)
def test_nothing_may_run_in_place_of_a_source(out: Path, name: str) -> None:
    """The check finds all files that Python might import before a model.py or instead of it, bytecode in both places
    too."""
    file = out / "net" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    [finding] = verify(out)
    assert finding.file == file


def test_a_linked_cache_is_compiled_python_too(out: Path, tmp_path: Path) -> None:
    """Python follows the link."""
    (tmp_path / "elsewhere").mkdir()
    (out / "net" / "1" / "__pycache__").symlink_to(tmp_path / "elsewhere")
    [finding] = verify(out)
    assert "compiled Python" in finding.found
    assert "remove" in finding.todo


def test_a_build_removes_compiled_python_and_copies_leave_it_out(out: Path, tmp_path: Path) -> None:
    """Compiled Python goes even if nothing else has changed, and from versions that stay."""
    models = [rendered(tmp_path / n, CONTENT, n) for n in ("net", "other")]

    def compile_all() -> None:
        for folder in (out / "net", out / "net" / "1"):
            (folder / "__pycache__").mkdir(exist_ok=True)
            (folder / "__pycache__" / "model.cpython-311.pyc").write_text("x")

    compile_all()
    assert [change.action for change in publish(out, models)] == ["unchanged", "unchanged"]
    assert verify(out) == []
    compile_all()
    copy_models(out, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").rglob("__pycache__")) == []
    replace_models(out, tmp_path / "copy", "net", ["net"])
    assert verify(tmp_path / "copy") == []
    publish(out, [rendered(tmp_path / "net", b"second", "net"), models[1]])
    assert not [*out.rglob("*.pyc")]


def test_models_of_others_are_named_and_passed_over(out: Path) -> None:
    """A hand-written model has no hashes; one of ours that lost its manifests is not hand-written."""
    (out / "mine" / "1").mkdir(parents=True)
    (out / "mine" / "config.pbtxt").write_text('name: "mine"\n')
    assert verify(out) == []
    assert foreign(out) == ["mine"]
    (out / "net" / "manifest.json").unlink()
    (out / "net" / "1" / "manifest.json").unlink()
    assert foreign(out) == ["mine"]
    assert len(verify(out)) == 2


def test_a_build_mends_what_was_found(out: Path, tmp_path: Path) -> None:
    """Damaged weights come back as a new version, everything else in place; then nothing is found."""
    models = [rendered(tmp_path / n, CONTENT, n) for n in ("net", "other")]
    flip(out / "net" / "1" / "model.onnx")
    (out / "other" / "manifest.json").unlink()
    assert [c.action for c in publish(out, models)] == ["new version", "new configuration"]
    assert verify(out) == []


def test_a_model_published_meanwhile_is_verified_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that a publish takes away while they are hashed do not count as damage."""
    hashed = integrity._sha256
    published: list[int] = []

    def slow(file: Path, count: Callable[[int], bool]) -> str | None:
        if not published:
            published.append(1)
            policy = VersionPolicy(latest=1)
            for content in (b"two", b"three"):
                publish(out, [rendered(tmp_path / "net", content, "net", policy, f"# {content!r}\n")])
        return hashed(file, count)

    monkeypatch.setattr(integrity, "_sha256", slow)
    assert verify(out, ["net"]) == []


def test_verifying_beside_other_work(out: Path) -> None:
    """The thread reports its findings at the end; stopped, it reports nothing; a failure is a finding."""
    flip(out / "net" / "1" / "model.onnx")
    reported: list[list[Damage]] = []
    verifier = Verifier(out, then=reported.append)
    verifier.start()
    verifier.join(30)
    assert reported == [verifier.findings]
    assert [finding.model for finding in reported[0]] == ["net"]

    begun, go_on = threading.Event(), threading.Event()

    def wait(done: int, total: int) -> None:
        begun.set()
        go_on.wait(30)

    stopped = Verifier(out, then=reported.append, progress=wait)
    stopped.start()
    assert begun.wait(30)
    stopped.stop()
    go_on.set()
    stopped.join(30)
    assert stopped.findings is None
    assert len(reported) == 1

    def fail(done: int, total: int) -> None:
        raise RuntimeError("the terminal is gone")

    failing = Verifier(out, progress=fail)
    failing.start()
    failing.join(30)
    assert failing.findings is not None
    assert "the terminal is gone" in failing.findings[0].found


def test_all_findings_are_one_error(out: Path) -> None:
    """The first has where, found, wanted and what to do; the others follow as details; exit code 4."""
    for name in ("net", "other"):
        flip(out / name / "1" / "model.onnx")
    error = damage(verify(out))
    assert error.exit_code == 4
    assert error.where == str(out / "net" / "1" / "model.onnx")
    assert str(out / "other" / "1" / "model.onnx") in error.details
    assert "tritonkit build" in error.todo


def test_it_runs_without_tritonkit(out: Path, tmp_path: Path) -> None:
    """The file alone, as the server's image has it: nothing but the standard library is imported."""
    source = Path(integrity.__file__)
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            assert str(name).split(".")[0] in sys.stdlib_module_names
    shutil.copy(source, tmp_path / "integrity.py")
    flip(out / "net" / "1" / "model.onnx")
    code = (
        "import sys; from pathlib import Path; from integrity import verify\n"
        "print([str(finding.file) for finding in verify(Path(sys.argv[1]))])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(out)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([str(out / "net" / "1" / "model.onnx")])
