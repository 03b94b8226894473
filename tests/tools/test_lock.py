"""The locks of the server's environments."""

from __future__ import annotations

from pathlib import Path

from tests.tools.loading import load_tool


def package(name: str) -> str:
    """A package's lines in a lock."""
    return f"{name}==1 \\\n    --hash=sha256:{name}\n"


def test_packages_of_both_environments_are_locked_once(tmp_path: Path) -> None:
    """Packages that differ stay in each lock, which refers to the common one."""
    (tmp_path / "requirements.lock").write_text(f"# made\n{package('both')}{package('cpu')}")
    (tmp_path / "requirements-gpu.lock").write_text(f"# made\n{package('both')}{package('gpu')}")
    tool = load_tool("lock")
    tool.share(tmp_path)
    texts = {file.name: file.read_text().removeprefix(tool.HEADER) for file in tmp_path.iterdir()}
    assert texts == {
        "requirements-common.lock": package("both"),
        "requirements.lock": f"-r requirements-common.lock\n{package('cpu')}",
        "requirements-gpu.lock": f"-r requirements-common.lock\n{package('gpu')}",
    }
