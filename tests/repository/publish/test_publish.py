"""Publishing: versions appear whole or not at all, older ones stay as the policy says, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tritonkit.errors import PublishError
from tritonkit.repository.export import Artifact, Signature, sha256_file
from tritonkit.repository.modelspec import VersionPolicy
from tritonkit.repository.publish import recover, staging, versions
from tritonkit.repository.publish.existing import recorded_cores
from tritonkit.repository.publish.integrity import verify
from tritonkit.repository.publish.publish import Rendered, drift, publish
from tritonkit.repository.publish.staging import Staging
from tritonkit.repository.render import ModelPlan

HEADER = "# Rendered by tritonkit from models/net/model.yaml (target cpu, cores 3). Do not edit: ...\n"


def rendered(
    source: Path, content: bytes, name: str = "net", policy: VersionPolicy | None = None, text: str = ""
) -> Rendered:
    """A model of one file, as if it had been built into `source`."""
    source.mkdir(parents=True, exist_ok=True)
    file = source / "model.onnx"
    file.write_bytes(content)
    artifact = Artifact(
        "net", "onnx-fp32", source, {"model.onnx": sha256_file(file)}, Signature((), (), True), None, "hash", {}
    )
    plan = ModelPlan(
        name,
        "onnxruntime",
        4,
        (),
        (),
        version_policy=policy or VersionPolicy(latest=1),
        version_files={"model.onnx": file},
        warmup_files={"sample": b"warm"},
    )
    return Rendered(plan, f'{HEADER}name: "{name}"\n{text}', artifact)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The place of the repository."""
    return tmp_path / "repository"


def test_the_first_publish_writes_everything(out: Path, tmp_path: Path) -> None:
    """Config, version, manifest and warm-up data are there, and no staging folder is."""
    changes = publish(out, [rendered(tmp_path / "a", b"one")])
    assert [(c.action, c.version) for c in changes] == [("new version", 1)]
    assert (out / "net" / "1" / "model.onnx").read_bytes() == b"one"
    assert (out / "net" / "warmup" / "sample").read_bytes() == b"warm"
    manifest = json.loads((out / "net" / "1" / "manifest.json").read_text())
    assert manifest["files"] == {"model.onnx": sha256_file(tmp_path / "a" / "model.onnx")}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "repository"]


def test_an_unchanged_model_is_not_touched(out: Path, tmp_path: Path) -> None:
    """The second publish of the same thing writes nothing: no time stamp changes."""
    model = rendered(tmp_path / "a", b"one")
    publish(out, [model])
    before = {path: path.stat().st_mtime_ns for path in [out, *out.rglob("*")]}
    assert publish(out, [model])[0].action == "unchanged"
    assert {path: path.stat().st_mtime_ns for path in [out, *out.rglob("*")]} == before


def test_a_changed_configuration_keeps_the_version(out: Path, tmp_path: Path) -> None:
    """Another queue delay needs no new version folder."""
    publish(out, [rendered(tmp_path / "a", b"one")])
    change = publish(out, [rendered(tmp_path / "a", b"one", text="max_batch_size: 8\n")])[0]
    assert (change.action, change.version) == ("new configuration", 1)
    assert "max_batch_size: 8" in (out / "net" / "config.pbtxt").read_text()
    assert versions(out / "net") == [1]


def test_configurations_for_fewer_cores_lie_where_triton_looks(out: Path, tmp_path: Path) -> None:
    """Each configuration has its own name and is in the manifest; one that a build no longer makes is drift, and then
    removed."""
    model = rendered(tmp_path / "a", b"one")
    publish(out, [replace(model, fewer_cores={1: "# one\n", 2: "# two\n"})])
    assert (out / "net" / "configs" / "cores-2.pbtxt").read_text() == "# two\n"
    assert "configs/cores-1.pbtxt" in json.loads((out / "net" / "manifest.json").read_text())["files"]
    assert verify(out) == []
    only = replace(model, fewer_cores={1: "# one\n"})
    stale = str(out / "net" / "configs" / "cores-2.pbtxt")
    assert drift(out, [only]) == {stale: ("# two\n", "")}
    assert publish(out, [only])[0].action == "new configuration"
    assert [path.name for path in (out / "net" / "configs").iterdir()] == ["cores-1.pbtxt"]
    assert drift(out, [only]) == {}


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (VersionPolicy(latest=1), [4, 5]),
        (VersionPolicy(latest=2), [3, 4, 5]),
        (VersionPolicy(all=True), [1, 2, 3, 4, 5]),
        (VersionPolicy(specific=(2,)), [2, 4, 5]),
    ],
)
def test_older_versions_stay_as_the_policy_says(
    out: Path, tmp_path: Path, policy: VersionPolicy, left: list[int]
) -> None:
    """Served versions stay, and the one before, so that a publish can be undone."""
    for number in range(1, 6):
        now = policy if number > 1 else VersionPolicy(latest=1)
        publish(out, [rendered(tmp_path / "a", f"content {number}".encode(), policy=now)])
    assert versions(out / "net") == left
    assert (out / "net" / str(left[0]) / "model.onnx").read_text() == f"content {left[0]}"


def test_a_damaged_version_is_replaced_by_a_new_one(out: Path, tmp_path: Path) -> None:
    """A file whose hash is not the manifest's is published again under the next number."""
    model = rendered(tmp_path / "a", b"one")
    publish(out, [model])
    (out / "net" / "1" / "model.onnx").write_bytes(b"damaged")
    assert publish(out, [model])[0].version == 2
    assert (out / "net" / "2" / "model.onnx").read_bytes() == b"one"


def test_a_new_version_s_number_is_above_those_given_before(out: Path, tmp_path: Path) -> None:
    """Only numbers of its own model count; unchanged models keep their version, and present versions count too."""
    first = [rendered(tmp_path / n, b"one", n) for n in ("one", "two")]
    publish(out, first)
    assert [c.action for c in publish(out, first, after={"one": 4})] == ["unchanged", "unchanged"]
    second = [rendered(tmp_path / n, b"two", n) for n in ("one", "two")]
    for dry_run in (True, False):
        changes = publish(out, second, after={"one": 4}, dry_run=dry_run)
        assert [(c.action, c.version) for c in changes] == [("new version", 5), ("new version", 2)]
    assert [versions(out / name) for name in ("one", "two")] == [[1, 5], [1, 2]]
    assert verify(out) == []
    assert publish(out, [rendered(tmp_path / "one", b"three", "one")], after={"one": 4})[0].version == 6
    assert versions(out / "one") == [5, 6]


def test_a_dry_run_writes_nothing(out: Path, tmp_path: Path) -> None:
    """The dry run says what would be done."""
    assert publish(out, [rendered(tmp_path / "a", b"one")], dry_run=True)[0].action == "new version"
    assert not out.exists()


def test_models_of_a_spec_that_are_gone_are_removed(out: Path, tmp_path: Path) -> None:
    """A step taken out of a pipeline leaves the repository; what a person put there stays."""
    publish(out, [rendered(tmp_path / "a", b"one"), rendered(tmp_path / "b", b"two", "net_step")])
    (out / "mine").mkdir()
    (out / "mine" / "config.pbtxt").write_text('name: "mine"\n')
    changes = publish(out, [rendered(tmp_path / "a", b"one")])
    assert ("net_step", "removed") in [(c.model, c.action) for c in changes]
    assert sorted(p.name for p in out.iterdir()) == ["mine", "net"]


@pytest.mark.parametrize("kind", ["config", "weights", "file"])
def test_what_a_person_put_there_is_never_replaced(out: Path, tmp_path: Path, kind: str) -> None:
    """A folder or file of the model's name that tritonkit did not write is refused and left."""
    out.mkdir()
    place = {"config": "net/config.pbtxt", "weights": "net/1/model.onnx", "file": "net"}[kind]
    (out / place).parent.mkdir(parents=True, exist_ok=True)
    (out / place).write_text('name: "net"\n')
    for dry_run in (True, False):
        with pytest.raises(PublishError, match="did not write it"):
            publish(out, [rendered(tmp_path / "a", b"one")], dry_run=dry_run)
    assert (out / place).read_text() == 'name: "net"\n'


def test_a_model_of_another_spec_is_never_replaced(out: Path, tmp_path: Path) -> None:
    """Two specs may not take turns in one folder."""
    publish(out, [rendered(tmp_path / "a", b"one")])
    config = out / "net" / "config.pbtxt"
    config.write_text(config.read_text().replace("models/net/", "models/other/"))
    with pytest.raises(PublishError, match="belongs to models/other"):
        publish(out, [rendered(tmp_path / "a", b"two")])


def test_odd_neighbors_do_no_harm(out: Path, tmp_path: Path) -> None:
    """Configurations that are folders or no text belong to somebody else."""
    (out / "net1" / "config.pbtxt").mkdir(parents=True)
    (out / "net2").mkdir()
    (out / "net2" / "config.pbtxt").write_bytes(b"\xff\xfe")
    model = rendered(tmp_path / "a", b"one")
    publish(out, [model], all_specs=True)
    assert drift(out, [model], all_specs=True) == {}
    assert recorded_cores(out, "net") == 3
    assert sorted(p.name for p in out.iterdir()) == ["net", "net1", "net2"]


def test_a_repository_that_is_a_file_is_refused(out: Path, tmp_path: Path) -> None:
    """--out names a folder."""
    out.write_text("mine")
    with pytest.raises(PublishError, match="another --out"):
        publish(out, [rendered(tmp_path / "a", b"one")])
    assert out.read_text() == "mine"


def test_a_policy_that_serves_nothing_is_refused(out: Path, tmp_path: Path) -> None:
    """Triton does not start with a model of which no version may be served."""
    model = rendered(tmp_path / "a", b"one", policy=VersionPolicy(specific=(7,)))
    with pytest.raises(PublishError, match="no such version"):
        publish(out, [model])
    assert not list(out.iterdir())


@pytest.mark.parametrize("place", [".staging", "net/.staging", "zebra/.staging"])
def test_staging_is_found_wherever_a_kill_left_it(out: Path, tmp_path: Path, place: str) -> None:
    """A mounted repository stages inside itself, in a place that depends on what it held then."""
    publish(out, [rendered(tmp_path / "a", b"one")])
    (out / place).mkdir(parents=True)
    assert recover(out)
    assert not (out / place).exists()


def test_drift_shows_what_a_fresh_render_would_change(out: Path, tmp_path: Path) -> None:
    """A hand-edited config is found; an untouched one is not."""
    model = rendered(tmp_path / "a", b"one")
    publish(out, [model])
    assert drift(out, [model]) == {}
    config = out / "net" / "config.pbtxt"
    config.write_text(config.read_text() + "max_batch_size: 1\n")
    assert list(drift(out, [model])) == [str(config)]


def test_the_cores_of_a_render_are_recorded(out: Path, tmp_path: Path) -> None:
    """Any machine can check a repository rendered for another."""
    publish(out, [rendered(tmp_path / "a", b"one")])
    assert recorded_cores(out, "net") == 3
    assert recorded_cores(out, "other") is None


def test_a_publish_killed_after_its_commit_record_is_finished(out: Path, tmp_path: Path) -> None:
    """One of two models was in place: recovering puts the other there too, and changes nothing else."""
    first, second = rendered(tmp_path / "a", b"old", "one"), rendered(tmp_path / "b", b"old", "two")
    publish(out, [first, second])
    place = Staging(out)
    place.__enter__()
    for name in ("one", "two"):
        (place.new(name) / "config.pbtxt").write_text("new")
    record = {name: (place.folder / name).stat().st_ino for name in ("one", "two")}
    os.rename(out / "one", place.folder / "aside")  # noqa: PTH104
    os.rename(place.folder / "one", out / "one")  # noqa: PTH104
    os.rename(place.folder / "aside", place.folder / "one")  # noqa: PTH104
    (place.folder / "commit.json").write_text(json.dumps(record))
    assert recover(out)
    assert [(out / name / "config.pbtxt").read_text() for name in ("one", "two")] == ["new", "new"]
    assert not place.folder.exists()


def test_a_publish_interrupted_after_its_commit_record_is_finished(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between two models: the decided changes are completed, and no folder is left over."""
    models = [rendered(tmp_path / "a", b"old", "one"), rendered(tmp_path / "b", b"old", "two")]
    finish, calls = staging._finish, []

    def interrupted(folder: Path, target: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        finish(folder, target)

    monkeypatch.setattr(staging, "_finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(out, models)
    assert [versions(out / name) for name in ("one", "two")] == [[1], [1]]
    assert not calls[0].exists()


KILLED = """
import sys, itertools
sys.path[:0] = [{project!r}, {source!r}]
from pathlib import Path
from tests.repository.publish.test_publish import rendered
from tritonkit.repository.publish.publish import publish
out, scratch = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
for number in itertools.count(int(sys.argv[3])):
    content = str(number).encode() * 20000
    text = f'default_model_filename: "{{number}}"\\n'
    publish(out, [rendered(scratch / n, content, n, text=text) for n in ("one", "two")])
"""


@pytest.mark.slow
def test_killing_a_publish_at_any_moment_leaves_whole_versions(out: Path, tmp_path: Path, project: Path) -> None:
    """Twelve kills at random moments: each model has a config and a version whose files are whole,
    and no folder that Triton would take for a model is left over."""
    code = KILLED.format(project=str(project), source=str(project / "src"))
    for attempt in range(12):
        arguments = [str(out), str(tmp_path / "scratch"), str(attempt * 1000)]
        with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.02 + 0.013 * attempt)
            process.send_signal(signal.SIGKILL)
        hold_whole(out)


def hold_whole(out: Path) -> None:
    """The parts that Triton needs of a repository after a kill."""
    for folder in out.iterdir() if out.exists() else ():
        assert folder.name in ("one", "two")
        assert (folder / "config.pbtxt").read_text().startswith("# Rendered")
        newest = folder / str(versions(folder)[-1])
        manifest = json.loads((newest / "manifest.json").read_text())
        for name, digest in manifest["files"].items():
            assert sha256_file(newest / name) == digest


@pytest.mark.parametrize("mounted", [True, False], ids=["the repository is the mount", "a folder on it"])
def test_a_full_disk_loses_nothing(small_disk: Path, tmp_path: Path, mounted: bool) -> None:
    """The error says so, the served version is still there, and a smaller publish works afterwards."""
    out = small_disk if mounted else small_disk / "repository"
    publish(out, [rendered(tmp_path / "a", b"one")])
    with pytest.raises(PublishError, match=r"the disk is full: .* are free\n  wanted: 2.0 MiB") as caught:
        publish(out, [rendered(tmp_path / "a", b"x" * 2**21)])
    assert caught.value.exit_code == 3
    assert (out / "net" / "1" / "model.onnx").read_bytes() == b"one"
    assert versions(out / "net") == [1]
    assert publish(out, [rendered(tmp_path / "a", b"two")])[0].version == 2
    assert (out / "net" / "2" / "model.onnx").read_bytes() == b"two"
    left = ["1", "2", "config.pbtxt", "manifest.json", "warmup"]
    assert sorted(p.name for p in (out / "net").iterdir()) == left


def test_a_mounted_repository_takes_several_models(small_disk: Path, tmp_path: Path) -> None:
    """All models are still published whole if staging lies inside the first model's folder."""
    for content in (b"one", b"two", b"three"):
        models = [rendered(tmp_path / n, content, n) for n in ("alpha", "beta")]
        publish(small_disk, models)
    for name in ("alpha", "beta"):
        assert (small_disk / name / "3" / "model.onnx").read_bytes() == b"three"
        assert (small_disk / name / "config.pbtxt").read_text().endswith(f'name: "{name}"\n')
        assert versions(small_disk / name) == [2, 3]
        assert not (small_disk / name / ".staging").exists()


@pytest.mark.parametrize("moves", range(2, 7))
def test_a_kill_within_a_mounted_model_is_finished(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """After any of its parts was put in place, none goes back, and the new version is not taken for left over."""
    for content in (b"one", b"two"):
        publish(small_disk, [rendered(tmp_path / "net", content)])

    class Killed(BaseException):
        pass

    synced = []
    real = staging.sync

    def sync(place: Path) -> None:
        real(place)
        synced.extend([place] if place == small_disk / "net" else [])
        if len(synced) == moves:
            monkeypatch.setattr(staging, "_clear", lambda folder: None)
            raise Killed

    monkeypatch.setattr(staging, "sync", sync)
    with pytest.raises(Killed):
        publish(small_disk, [rendered(tmp_path / "net", b"three", text="# changed\n")])
    monkeypatch.undo()
    assert recover(small_disk)
    net = small_disk / "net"
    assert (net / "3" / "model.onnx").read_bytes() == b"three"
    assert (net / "config.pbtxt").read_text().endswith("# changed\n")
    assert versions(net) == [2, 3]
    assert not (net / ".staging").exists()


def test_recovering_waits_for_a_publish_that_is_going_on(out: Path, tmp_path: Path) -> None:
    """A server that starts while a build writes does not take its staging folder away."""
    publish(out, [rendered(tmp_path / "a", b"one")])
    code = f"""
import sys, time
sys.path.insert(0, {str(PROJECT / "src")!r})
from pathlib import Path
from tritonkit.repository.publish.publish import locked
from tritonkit.repository.publish.staging import Staging
out = Path({str(out)!r})
with locked(out), Staging(out) as place:
    print("staged", flush=True)
    time.sleep(0.5)
    assert place.folder.is_dir()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"staged\n"
        assert not recover(out), "by then the publish has cleared up itself"
    assert process.returncode == 0
