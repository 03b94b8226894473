"""Make the packages that a model's own Python has for itself, for the Python of the server's stub."""

from tritonkit.repository.environments.environment import (
    FACTS,
    OWN_MODEL,
    PACKAGES,
    Environment,
    environment_files,
    read_environment,
)
from tritonkit.repository.environments.interpreter import Interpreter
from tritonkit.repository.environments.make import Environments

__all__ = [
    "FACTS",
    "OWN_MODEL",
    "PACKAGES",
    "Environment",
    "Environments",
    "Interpreter",
    "environment_files",
    "read_environment",
]
