"""The table of commands, and the group that imports a command's module when it is run or its help is shown."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["COMMANDS", "LazyGroup", "load"]

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Make a repository": {
        "demo": ("repository.commands.demo", "Build, serve and call the models that ship."),
        "doctor": ("serve.commands.doctor", "Check what this machine has and lacks."),
        "server": ("serve.commands.server:app", "Install, find or remove Triton's own environment."),
        "new": ("repository.commands.new", "Write a model's folder."),
        "schema": ("repository.commands.new:schema", "Print the JSON schema of model.yaml, for editors."),
        "inspect": ("repository.commands.inspect", "Describe a model's folder without running any of it."),
        "build": ("repository.commands.build", "Build models into a Triton repository."),
        "report": ("repository.commands.report", "Write the report about a build's variants."),
        "check-batching": ("perf.commands.check_batching", "Check that items of a batch do not mix."),
    },
    "Serve and call": {
        "serve": ("serve.commands.serve", "Serve a repository until Ctrl-C."),
        "call": ("client.commands.call", "Call a served model once."),
        "models": ("client.commands.models", "List a server's models and their states."),
        "reload": ("client.commands.reload", "Make running servers load the newest versions."),
        "openai": ("openai.commands.openai", "Answer OpenAI's API from a server's models."),
    },
    "Measure and decide": {
        "load": ("perf.commands.load", "Load served models and check answers and latency."),
        "profile": ("perf.commands.profile", "Show where a request's time goes."),
        "tune": ("perf.commands.tune", "Find the best way to serve a model for a target."),
        "plan": ("perf.commands.plan", "Plan replicas and cost for a rate and a target."),
        "diagnose": ("perf.commands.diagnose", "Name the bottleneck of running servers."),
    },
    "Operate replicas behind a gateway": {
        "certs": ("operate.commands.certs", "Make certificates for the gateway."),
        "keys": ("operate.commands.keys:app", "Add, list or revoke the API keys of callers."),
        "up": ("operate.commands.up:up", "Start replicas behind one gateway."),
        "down": ("operate.commands.up:down", "Stop the replicas and their gateway."),
        "release": ("operate.commands.release:release", "Release a new version to them, step by step."),
        "rollback": ("operate.commands.release:rollback", "Return to the version before the last release."),
        "dash": ("operate.commands.dash", "Show traffic, errors and latency as a page."),
        "dashboard": ("operate.commands.dashboard", "Write Grafana's dashboard and Prometheus' alerts."),
        "gateway": ("operate.commands.gateway:app", "Check or render the gateway's files."),
        "limiter": ("operate.commands.limiter", "Run the rate limits that gateways share."),
    },
    "Store and deploy": {
        "verify": ("operate.commands.verify", "Check every served file against its manifest."),
        "sign": ("operate.commands.sign", "Sign the models of a repository."),
        "backup": ("operate.commands.backup", "Copy a repository to a store."),
        "restore": ("operate.commands.restore", "Put the models of a backup in place."),
        "prune": ("operate.commands.prune", "Remove old backups from a store."),
        "compose": ("operate.commands.compose", "Write docker-compose.yml and its images' files."),
        "manifests": ("operate.commands.manifests", "Write the limits of the container that serves."),
        "deploy": ("operate.commands.deploy:app", "Render files for Kubernetes or AWS Lambda."),
    },
}
"""Heading of `tritonkit --help` -> command -> its module in the package, with its name there if that is not `command`,
and a line of help. Both are in the order in which a person needs them."""
_LINES = {name: line for commands in COMMANDS.values() for name, line in commands.items()}


class LazyGroup(TyperGroup):
    """The group of all commands: it lists stubs, and imports the one that is run, completed or helped."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=text) for name, (_, text) in _LINES.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, imported, and the arguments for it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if command is None else load(str(name)), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under their headings."""
        width = max(map(len, _LINES))
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


def load(name: str) -> Any:
    """The command of this name, as Typer makes it of a function, or of an app with commands of its own."""
    module, _, attribute = _LINES[name][0].partition(":")
    function = getattr(import_module(f"tritonkit.{module}"), attribute or "command")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if isinstance(function, typer.Typer):
        alone.add_typer(function, name=name)
        group: Any = get_command(alone)
        return group.commands[name]
    alone.command(name)(function)
    return get_command(alone)
