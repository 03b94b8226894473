"""Write docs/cli.md from the commands' own help: `python tools/cli_page.py`. A test checks that it is current."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tritonkit.cli import app
from tritonkit.cli.lazy import COMMANDS, load

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
INTRODUCTION = """# Command line

Written by `python tools/cli_page.py` from the commands' own help.

`tritonkit --version` prints the version, `tritonkit --install-completion` sets up completion in your shell
(bash, zsh, fish), and `python -m tritonkit` is the same program. The shell completes commands and options,
models of `models/` and `model_repository/`, variants, and the addresses of this project's running servers.
[install](install.md) says how to install it.

Exit codes: 0 done; 2 a mistake in a spec or on the command line; 3 build, gate or publishing;
4 server, or files that are not as published; 5 client, network or a store of backups; 6 a release that was
undone automatically; 1 anything else.

Messages of servers, logs and model folders are shown as text: control characters, characters that reverse the
order of text, and markup are written out (an escape as `\\x1b`), and further lines of a message stand behind
a bar. `--json` is ASCII.
"""


def text() -> str:
    """The page."""
    runner = CliRunner()
    parts = [INTRODUCTION]
    for words in commands():
        shown = runner.invoke(app, [*words, "--help"], prog_name="tritonkit", terminal_width=100)
        help_text = "\n".join(line.rstrip() for line in shown.output.strip().splitlines())
        parts.append(f"## {' '.join(words)}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


def commands() -> list[tuple[str, ...]]:
    """The words of each command: `("build",)`, `("server", "install")`."""
    names: list[tuple[str, ...]] = []
    for name in (name for commands in COMMANDS.values() for name in commands):
        command = load(name)
        inner = getattr(command, "commands", None)
        # A group such as `deploy` is a command itself, too.
        alone = inner is None or command.invoke_without_command
        names += [(name,)] if alone else []
        names += [(name, word) for word in inner or ()]
    return names


if __name__ == "__main__":
    PAGE.write_text(text())
