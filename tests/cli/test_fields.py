"""A command's options are those of the settings that it takes, and the other way round."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pytest
import typer
from typer.main import get_command

from tritonkit.cli.fields import as_text, command_line, expanded
from tritonkit.cli.options import seconds
from tritonkit.errors import UsageError
from tritonkit.option import Option

if TYPE_CHECKING:
    from decimal import Decimal  # a name that only type checkers know


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings of a room, of which some fields are options."""

    root: Path
    price: Decimal | None = None
    _: KW_ONLY
    models: Annotated[Sequence[str] | None, Option("Models.", name="--model")] = None
    replicas: Annotated[int, Option("Servers.", min=1)] = 2
    verify: Annotated[bool, Option("Verify files.")] = True
    duration_s: Annotated[float, Option("A time.", name="--duration", metavar="TIME", unit="time", min=1.0)] = 600.0


@dataclass(frozen=True)
class Ports:
    """Settings that are options alone."""

    port: Annotated[int, Option("The port.")]
    quiet: Annotated[bool, Option("Say less.")] = False


calls: list[tuple[RunSettings, Ports, list[str]]] = []


@expanded("run it")
def run(
    name: Annotated[str, typer.Argument()],
    settings: partial[RunSettings],
    ports: Ports,
    detach: Annotated[bool, typer.Option("--detach")] = False,
) -> None:
    """Run it."""
    calls.append((settings(Path(name)), ports, command_line(detach=False)))


def call(*words: str) -> tuple[RunSettings, Ports, list[str]]:
    """The command line's way into the function."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(run)
    get_command(app)(list(words), standalone_mode=False)
    return calls.pop()


def test_settings_have_the_values_of_options() -> None:
    """Each has its type, a time is seconds, and what is not given has the field's default."""
    settings, ports, _ = call("x", "--port", "3", "--model", "a", "--model", "b", "--no-verify", "--duration", "5s")
    assert settings == RunSettings(Path("x"), models=("a", "b"), verify=False, duration_s=5.0)
    assert ports == Ports(3)
    assert call("x", "--port", "3")[0] == RunSettings(Path("x"))


def test_a_command_line_gives_the_same_values_again() -> None:
    """Only options that differ from their defaults are in it; changes are taken into account."""
    words = ["x", "--model", "-a", "--replicas", "4", "--no-verify", "--duration", "5s", "--port", "3", "--quiet"]
    *settings, again = call(*words, "--detach")
    assert again == ["run", "it", *(word for word in " ".join(words).replace("--model -a", "--model=-a").split())]
    assert list(call(*again[2:])[:2]) == settings


def test_a_call_from_python_knows_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the arguments of the process are; a time may be a number."""
    monkeypatch.setattr(sys, "argv", ["pytest", "--port", "9"])
    run(name="y", port=7, duration_s=90.0)
    settings, _, words = calls.pop()
    assert settings.duration_s == 90.0
    assert words == ["run", "it", "y", "--duration", "90s", "--port", "7"]


def test_a_bad_value_is_named_by_its_option() -> None:
    """A time needs its unit, and its bound counts, as the settings have it."""
    for text in ("5", "10ms"):
        with pytest.raises(UsageError, match="--duration"):
            call("x", "--port", "3", "--duration", text)


@pytest.mark.parametrize("time_s", [600.0, 90.0, 4.0, 0.05, 0.0005])
def test_a_time_is_written_as_it_is_read(time_s: float) -> None:
    """A default is shown as a person would type it."""
    assert seconds("--time", as_text(time_s)) == time_s
