"""A repository that is not as published or signed is not served: nothing is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit
from tests.repository.publish.damaging import flip
from tritonkit.errors import ServerError, UsageError
from tritonkit.operate.stack import Stack, StackEvent, StackSettings
from tritonkit.operate.store.keys import new_signing_key, read_public_key, read_signing_key
from tritonkit.operate.store.signature import sign
from tritonkit.operate.store.whole import require_whole


def test_only_what_is_served_is_looked_at(repository: Path) -> None:
    """All models by default; with names, those and the parts of ensembles."""
    require_whole(repository)
    flip(repository / "net" / "1" / "model.onnx")
    with pytest.raises(ServerError, match=r"net/1/model\.onnx"):
        require_whole(repository)
    require_whole(repository, ["other"])
    with pytest.raises(UsageError, match="no-such"):
        require_whole(repository, ["no-such"])


def test_a_key_wants_every_file_signed(repository: Path, tmp_path: Path) -> None:
    """A file that was changed together with its manifest, and a model that came later, are found by that alone."""
    new_signing_key(tmp_path / "key")
    public = read_public_key(tmp_path / "key.pub")
    with pytest.raises(ServerError, match="there is no signature"):
        require_whole(repository, public_key=public)
    sign(repository, read_signing_key(tmp_path / "key"))
    require_whole(repository, public_key=public)
    manifest = repository / "net" / "1" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))
    require_whole(repository)
    require_whole(repository, ["other"], public_key=public)
    with pytest.raises(ServerError, match=r"net/1/manifest\.json"):
        require_whole(repository, public_key=public)


def test_compiled_python_is_not_signed(repository: Path, tmp_path: Path) -> None:
    """Next to signed files, also of a model that has no manifest, it is refused, and not signed over."""
    new_signing_key(tmp_path / "key")
    key, public = read_signing_key(tmp_path / "key"), read_public_key(tmp_path / "key.pub")
    version = repository / "mine" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text('name: "mine" backend: "python"')
    (version / "model.py").write_text("")
    sign(repository, key)
    require_whole(repository, public_key=public)
    (version / "__pycache__").mkdir()
    (version / "__pycache__" / "model.cpython-311.pyc").write_text("x")
    for names in ([], ["mine"]):
        with pytest.raises(ServerError, match=r"model\.cpython-311\.pyc: compiled Python"):
            require_whole(repository, names, public_key=public)
    with pytest.raises(ServerError, match="compiled Python"):
        sign(repository, key)
    words = ("--repository", str(repository), "--public-key", str(tmp_path / "key.pub"))
    assert "sources only" in failed(tritonkit("verify", *words), 4)


def test_a_stack_of_a_damaged_repository_starts_nothing(repository: Path, tmp_path: Path) -> None:
    """It is refused before certificates and ports are looked at; without the check the next thing is."""
    flip(repository / "net" / "1" / "model.onnx")
    events: list[StackEvent] = []
    settings = StackSettings(tmp_path, repository, gateway=tmp_path / "gateway", on_event=events.append)
    with pytest.raises(ServerError, match=r"net/1/model\.onnx") as caught, Stack(settings):
        pass
    assert caught.value.exit_code == 4
    assert "tritonkit build" in caught.value.todo
    assert events == []
    assert not (tmp_path / ".tritonkit" / "run").exists()


@pytest.mark.parametrize("command", ["up", "serve"])
def test_commands_want_what_the_key_signed(repository: Path, tmp_path: Path, command: str) -> None:
    """Exit code 4, and what is missing."""
    new_signing_key(tmp_path / "key")
    words = ("--repository", str(repository), "--root", str(tmp_path))
    done = tritonkit(command, *words, "--public-key", str(tmp_path / "key.pub"))
    assert "there is no signature" in failed(done, 4)


def test_up_refuses_a_damaged_repository(repository: Path, tmp_path: Path) -> None:
    """It refuses by default; with `--no-verify` the next missing thing is named."""
    flip(repository / "net" / "1" / "model.onnx")
    words = ("up", "--repository", str(repository), "--root", str(tmp_path))
    assert "model.onnx" in failed(tritonkit(*words), 4)
    assert "tritonkit certs" in failed(tritonkit(*words, "--no-verify"), 2)
