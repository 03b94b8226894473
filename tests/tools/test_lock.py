"""The locks of the server's environments."""

from __future__ import annotations

from collections.abc import Iterable
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


WHEELS = {
    "1" * 64: "net-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "2" * 64: "net-1-cp312-cp312-manylinux_2_28_aarch64.whl",
    "3" * 64: "net-1-cp39-abi3-manylinux_2_28_x86_64.whl",
    "4" * 64: "net-1-py2.py3-none-any.whl",
    "5" * 64: "net-1-cp311-cp311-macosx_11_0_arm64.whl",
    "6" * 64: "net-1-cp310-cp310-manylinux_2_17_x86_64.whl",
    "7" * 64: "net-1-cp311-cp311-musllinux_1_2_x86_64.whl",
    "8" * 64: "net-1-cp313-abi3-manylinux_2_28_x86_64.whl",
    "9" * 64: "net-1.tar.gz",
}


def test_only_wheels_that_a_server_installs_are_locked() -> None:
    """On Linux, for its Pythons; a hash that the index does not know stays."""
    tool = load_tool("lock")

    def locked(digests: Iterable[str]) -> str:
        lines = ["net==1 ; python_version >= '3'", *(f"    --hash=sha256:{digest}" for digest in digests)]
        return "# made\n-r other.lock\n" + " \\\n".join(lines) + "\n"

    unknown = "a" * 64
    kept = tool.trim(locked([*WHEELS, unknown]) + "more==2\n", {"net": WHEELS, "more": {}}.get)
    assert kept == locked([*list(WHEELS)[:4], unknown]) + "more==2\n"
    assert tool.trim(locked(list(WHEELS)), {"net": WHEELS}.get) == locked(list(WHEELS)[:4])
