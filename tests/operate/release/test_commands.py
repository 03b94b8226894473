"""`tritonkit release` and `rollback` where nothing can be released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit_here
from tritonkit.errors import UsageError
from tritonkit.operate.release.history import forget, keep, latest, prune
from tritonkit.operate.stack import StackSettings
from tritonkit.operate.stack.releasing import Releasing
from tritonkit.repository.publish.numbers import FOLDER


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "5,3,100"), "rise to 100"),
        (("--canary", "0"), "above 0 and up to 100"),
        (("--abort-if", "p99<20ms"), "such as p99>20ms"),
        (("--abort-if", "differ>1%"), "--shadow 10%"),
        (("--steps", "100", "--abort-if", "p99>2x"), "or more steps"),
        (("--hold", "soon"), "--hold"),
        (("--shadow", "200%"), "up to 100"),
        ((), "tritonkit up --detach"),
    ],
)
def test_what_cannot_be_released_is_refused(root: Path, words: tuple[str, ...], message: str) -> None:
    """Before anything is built; without a stack, how to have one."""
    assert message in failed(tritonkit_here("release", "net", *words, "--root", str(root)), 2)


def test_nothing_to_take_back(root: Path) -> None:
    """No release is known."""
    assert "no release of it is known" in failed(tritonkit_here("rollback", "net", "--root", str(root)), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"public_key": Path("k.pub")}, "signed"), ({"models_folder": Path("memory")}, "from memory")],
)
def test_some_stacks_take_no_release(root: Path, options: dict[str, Path], message: str) -> None:
    """A stack of signed models or of a backup in memory takes no release, which would be neither."""
    settings = StackSettings(root, root / "model_repository", **options)
    session = Releasing(settings, None, [], root, root)  # type: ignore[arg-type]
    for what in ("served", "start", "split", "install"):
        with pytest.raises(UsageError, match=message):
            session.do(what, {})


def served(root: Path, text: str) -> Path:
    """A repository that serves `net`."""
    folder = root / "served"
    (folder / "net" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "net" / "config.pbtxt").write_text(
        f"# Rendered by tritonkit from models/net/model.yaml (target cpu, cores 1)\n{text}"
    )
    return folder


def test_a_clock_that_is_put_back_keeps_the_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last release is taken back first, and is not removed as an old one."""
    for number, year_s in enumerate((4e9, 1e9, 2e9, 3e9, 5e9)):
        monkeypatch.setattr("time.time_ns", lambda ns=int(year_s * 1e9): ns)
        keep(root, served(root, str(number)), "net", [f"net {number}"])
        prune(root, "net")
    released = []
    for _ in range(3):
        released += latest(root, "net").released
        forget(latest(root, "net"))
    assert released == ["net 4", "net 3", "net 2"]


def test_the_last_three_are_kept_and_taken_back_in_order(root: Path) -> None:
    """The newest first; what is not whole is passed over."""
    for number in range(5):
        keep(root, served(root, str(number)), "net", [f"net {number + 1}"])
        prune(root, "net")
    (root / FOLDER / "net" / "9999").mkdir()
    texts = []
    for _ in range(3):
        former = latest(root, "net")
        texts.append((former.folder / "net" / "config.pbtxt").read_text()[-1])
        assert former.released == (f"net {int(texts[-1]) + 1}",)
        forget(former)
    assert texts == ["4", "3", "2"]
    with pytest.raises(UsageError):
        latest(root, "net")
