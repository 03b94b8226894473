"""The tree of errors: as it is drawn, and copies that can be raised elsewhere."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from tritonkit import errors
from tritonkit.errors import InferenceError, Overloaded, TritonkitError, copy_error

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]
TREE = [kind for kind in KINDS if issubclass(kind, TritonkitError)]


def test_the_drawing_is_the_tree() -> None:
    """The module's docstring draws each error below its parent, with its exit code."""
    drawn: dict[str, tuple[str, int]] = {}
    parents: list[str] = []
    for branch, name, code in re.findall(r"^([│├└─ ]*)(\w+) +(\d)  ", errors.__doc__ or "", re.M):
        depth = len(branch) // 4
        parents[depth:] = [name]
        drawn[name] = (parents[depth - 1] if depth else "Exception", int(code))
    assert drawn == {kind.__name__: (kind.__base__.__name__, kind.exit_code) for kind in TREE if kind.__base__}


def test_the_guide_names_every_error_of_a_call(project: Path) -> None:
    """The table in docs/client.md has all branches of `ClientError`."""
    table = (project / "docs" / "client.md").read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]
    calls = {kind.__name__ for kind in TREE if issubclass(kind, errors.ClientError)}
    assert set(re.findall(r"`(\w+)`", table)) >= calls - {"ClientError"}


@pytest.mark.parametrize("kind", TREE)
def test_every_error_can_be_copied_and_pickled(kind: type[TritonkitError]) -> None:
    """All it says is in the copy, also whether the server surely did not begin."""
    more = {"unprocessed": True} if issubclass(kind, errors.ClientError) else {}
    error = kind("m", found="bad", wanted="good", todo="x", details="y", **more)
    for other in (copy_error(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - its own
        assert other is not error
        assert type(other) is kind
        assert str(other) == str(error)
        assert vars(other) == vars(error)


@pytest.mark.parametrize(
    "error",
    [
        InferenceError("m", found="bad"),
        ValueError("a", 1),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
)
def test_a_copy_says_the_same(error: Exception) -> None:
    """Type, text and cause are kept in an object of its own, without the traceback."""
    try:
        raise error from OSError(1, "below")
    except Exception as raised:
        made = copy_error(raised)
    assert made is not error
    assert type(made) is type(error)
    assert str(made) == str(error)
    assert made.__cause__ is error.__cause__
    assert made.__traceback__ is None


class Particular(Exception):
    """Needs a word that its `args` do not hold."""

    def __new__(cls, *args: object, word: str) -> Particular:
        """Made with the word only."""
        return super().__new__(cls, *args)

    def __init__(self, *args: object, word: str) -> None:
        super().__init__(*args)


class Forgetful(Overloaded):
    """Says something else once copied."""

    def __str__(self) -> str:
        return str(id(self))


@pytest.mark.parametrize("error", [Particular("a", word="b"), Forgetful("m", found="full")])
def test_an_error_that_cannot_be_copied_is_given_itself(error: Exception) -> None:
    """Rather one object for all than an error about an error, or one that says less."""
    assert copy_error(error) is error
