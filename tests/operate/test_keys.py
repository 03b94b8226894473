"""API keys: made once, kept as hashes, refused where the file cannot be trusted."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rooms import no_room
from tritonkit.errors import UsageError
from tritonkit.operate.keys import PREFIX, add_key, hash_of, read_keys, revoke_key

_TWICE = json.dumps({"name": "a", "sha256": "0" * 64, "models": ["*"]})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file for keys; its folder is made with them."""
    return tmp_path / "gateway" / "keys.json"


def test_a_key_is_kept_as_its_hash_alone(file: Path) -> None:
    """The file has name, models and rate, is its owner's, and does not have the key."""
    made, key = add_key(file, "alice", ("digits",), 50)
    assert key.startswith(PREFIX)
    assert len(key) >= 43
    assert made.sha256 == hash_of(key)
    assert made.burst == 5
    assert key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_keys(file) == [made]


def test_keys_made_at_once_are_all_kept(file: Path) -> None:
    """Two commands that write at the same time do not undo each other."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_key(file, f"key{number}"), range(24)))
    assert {key.name for key in read_keys(file)} == {f"key{number}" for number in range(24)}
    assert len({key.sha256 for key in read_keys(file)}) == 24


def test_a_revoked_key_is_gone(file: Path) -> None:
    """And one that never was is named with the nearest there is."""
    add_key(file, "alice")
    add_key(file, "bob")
    assert revoke_key(file, "alice").name == "alice"
    assert [key.name for key in read_keys(file)] == ["bob"]
    with pytest.raises(UsageError, match="bobb") as caught:
        revoke_key(file, "bobb")
    assert caught.value.wanted == "'bob'"


def test_on_a_full_disk_the_keys_stay_as_they_are(file: Path) -> None:
    """Nothing is added or revoked, nothing is left behind, and the error says what to do."""
    add_key(file, "alice")
    before = file.read_bytes()
    for change in (lambda: add_key(file, "bob"), lambda: revoke_key(file, "alice")):
        with no_room(10), pytest.raises(UsageError, match="cannot be written: File too large") as caught:
            change()
        assert caught.value.where == str(file)
        assert "keys are those from before" in caught.value.wanted
        assert [path.name for path in file.parent.iterdir()] == [file.name]
        assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "models", "rate", "burst", "message"),
    [
        ("", ("*",), None, None, "the name ''"),
        ("a b", ("*",), None, None, "the name 'a b'"),
        ("x" * 65, ("*",), None, None, "the name"),
        ('quote"', ("*",), None, None, "the name"),
        ("alice", (), None, None, "no model"),
        ("alice", ("di gits",), None, None, "the model 'di gits'"),
        ("alice", ("../up",), None, None, "the model '../up'"),
        ("alice", ("*",), 0, None, "a rate of 0/s"),
        ("alice", ("*",), float("nan"), 1, "a rate of nan/s"),
        ("alice", ("*",), -1, None, "a rate of -1/s"),
        ("alice", ("*",), 10, 0, "a burst of 0"),
    ],
)
def test_what_cannot_be_a_key_is_refused(
    file: Path, name: str, models: tuple[str, ...], rate: float | None, burst: int | None, message: str
) -> None:
    """The error says what was found and what was expected; nothing is written."""
    with pytest.raises(UsageError) as caught:
        add_key(file, name, models, rate, burst)
    assert caught.value.found.startswith(message)
    assert caught.value.wanted
    assert not file.exists()


def test_a_name_is_taken_once(file: Path) -> None:
    """The first key stays as it is."""
    made, _ = add_key(file, "alice")
    with pytest.raises(UsageError, match="there is one of that name"):
        add_key(file, "alice")
    assert read_keys(file) == [made]


def test_a_file_that_others_can_write_is_refused(file: Path) -> None:
    """Anyone who can write it could add a key of their own."""
    add_key(file, "alice")
    file.chmod(0o620)
    with pytest.raises(UsageError, match="others than you can write it"):
        read_keys(file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{"name": "a"}]}',
        '{"version": 1, "keys": [{"name": "a", "sha256": "xyz", "models": ["*"]}]}',
        '{"version": 1, "keys": [{"name": "a\\"", "sha256": "' + "0" * 64 + '", "models": ["*"]}]}',
        '{"version": 1, "keys": [{"name": "a", "sha256": "' + "0" * 64 + '", "models": ["*"], "more": 1}]}',
        '{"version": 1, "keys": [{"name": "a", "sha256": "' + "0" * 64 + '", "models": "digits"}]}',
        '{"version": 1, "keys": [{"name": "a", "sha256": "' + "0" * 64 + '", "models": ["*"], "burst": 1.5}]}',
        '{"version": 1, "keys": [' + ", ".join(2 * [_TWICE]) + "]}",
    ],
)
def test_a_file_of_something_else_is_refused(file: Path, text: str) -> None:
    """In one message, which names the file."""
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(UsageError, match=r"keys\.json: it cannot be read"):
        read_keys(file)


def test_the_file_is_plain_json(file: Path) -> None:
    """Other programs may read who has which models."""
    add_key(file, "alice", ("digits", "sentences"), 12.5, 3)
    facts = json.loads(file.read_text())
    assert facts["keys"][0] | {"sha256": "", "created": 0} == {
        "name": "alice",
        "sha256": "",
        "models": ["digits", "sentences"],
        "rate_per_s": 12.5,
        "burst": 3,
        "created": 0,
    }
