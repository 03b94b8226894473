"""The gateway's commands: what they print, and what they refuse before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit_here
from tritonkit.operate.gateway.overload import memory_notes
from tritonkit.operate.gateway.spec import GatewayLimits


def here(*words: str, folder: Path) -> str:
    """Standard output of a command that went well, for this gateway's folder."""
    done = tritonkit_here(*words, "--gateway", str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_key_is_printed_once_and_listed_without_it(tmp_path: Path) -> None:
    """The key is one line, ready for a file; the list has names, models and rates."""
    key = here("keys", "add", "alice", "--model", "digits", "--rate", "50", folder=tmp_path)
    assert key.startswith("tk_")
    assert key.count("\n") == 1
    facts = json.loads(here("keys", "list", "--json", folder=tmp_path))
    assert [(key["name"], key["models"], key["rate_per_s"]) for key in facts] == [("alice", ["digits"], 50.0)]
    table = here("keys", "list", folder=tmp_path)
    assert "alice" in table
    assert key.strip() not in table + json.dumps(facts)
    here("keys", "revoke", "alice", folder=tmp_path)
    assert json.loads(here("keys", "list", "--json", folder=tmp_path)) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("keys", "add", "a b"), "the name 'a b'"),
        (("keys", "add", "alice", "--rate", "0"), "a rate of 0/s"),
        (("keys", "revoke", "nobody"), "none of that name"),
        (("certs", "--name", "exa mple"), "exa mple"),
        (("gateway", "check"), "tritonkit certs"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """With exit code 2, a message, and nothing written."""
    assert message in failed(tritonkit_here(*words, "--gateway", str(tmp_path)), 2)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.needs("envoy")
def test_a_gateway_is_checked(tmp_path: Path, project: Path) -> None:
    """Envoy checks it too; its refusals, and mistakes in a file, are reported."""
    here("certs", "--name", "localhost", folder=tmp_path)
    here("keys", "add", "alice", folder=tmp_path)
    facts = json.loads(here("gateway", "check", "--json", folder=tmp_path))
    assert facts["keys"] == ["alice"]
    assert facts["names"] == ["localhost"]
    assert {file.name for file in tmp_path.iterdir()} == {"keys.json", "tls"}
    (tmp_path / "gateway.yaml").write_text("limits: {memory_mib: 2048}\n")
    done = tritonkit_here("gateway", "check", "--gateway", str(tmp_path))
    assert "note: in docker compose this needs GATEWAY_MEMORY=2304m or more\n" in done.stderr
    (tmp_path / "gateway.yaml").write_text("prot: 1\n")
    assert "unknown key 'prot'" in failed(tritonkit_here("gateway", "check", "--gateway", str(tmp_path)), 2)
    (tmp_path / "gateway.yaml").write_text("jwt: {issuer: me, jwks: missing.json}\n")
    assert "Envoy does not take it" in failed(tritonkit_here("gateway", "check", "--gateway", str(tmp_path)), 3)


@pytest.mark.parametrize(
    ("memory_mib", "request_mib", "warnings"),
    [
        (1024, 64, []),
        (256, 64, []),
        (64, 64, ["less than four of the largest requests: 256 MiB are used"]),
        (64, 8, ["256 or more avoids that"]),
        (1024, 512, ["2048 MiB are used", "GATEWAY_MEMORY=2304m"]),
    ],
)
def test_memory_of_a_gateway_is_advised_on(memory_mib: int, request_mib: int, warnings: list[str]) -> None:
    """Too little of it for bursts or large requests, and more than docker compose gives by default."""
    notes = memory_notes(GatewayLimits(memory_mib=memory_mib, request_mib=request_mib))
    assert len(notes) == len(warnings)
    assert all(words in note for note, words in zip(notes, warnings, strict=True))
