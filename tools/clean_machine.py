"""README's promise on a machine that has nothing else: `python tools/clean_machine.py [COMMAND]`

A container of the bare Debian base (deploy/docker/local-base.sh makes it) gets the packages that README's "Needed"
names, and nothing else; then a copy of this checkout runs `make demo` and the tests that need no server there.
The settings of pip on this machine (index, local folders of wheels, constraints) apply there, too. It needs a Docker
daemon. The exit code is the command's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

PROJECT = Path(__file__).resolve().parent.parent
COMMAND = "make demo && make unit"
IMAGE = "tritonkit/clean:local"
DOCKERFILE = """ARG BASE
FROM ${BASE}
ARG PACKAGES
RUN apt-get update -qq && apt-get install -qq --no-install-recommends ${PACKAGES} \
 && rm -rf /var/lib/apt/lists/*
"""
_OF_THE_BASE = {"PIP_CERT"}


def packages(readme: str) -> list[str]:
    """The Debian packages that README's "Needed" names."""
    needed = readme.split("\nNeeded:", 1)[1].split("\n\n", 1)[0]
    match = re.search(r"`apt-get install ([^`]+)`", needed)
    if match is None:
        raise SystemExit("README.md: its 'Needed' names no `apt-get install ...`")
    return match[1].split()


def pip_settings(listed: str) -> dict[str, str]:
    """pip's settings as environment variables.

    Args:
        listed: what `pip config list` prints.
    """
    settings_listed = re.findall(r"(?m)^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed)
    settings = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings_listed}
    return {name: value for name, value in settings.items() if name not in _OF_THE_BASE}


def local_places(settings: dict[str, str]) -> set[Path]:
    """The folders and files of this machine that pip's settings name."""
    places = set()
    for word in " ".join(settings.values()).split():
        path = Path(urlsplit(word).path)
        if path.is_absolute() and path.exists():
            # The pages of an index name files next to its folder of pages.
            places.add(path.parent if path.name == "simple" else path)
    return places


def image() -> str:
    """Build the image on the base of the compose stack's images; return its name."""
    with tempfile.TemporaryDirectory() as folder:
        variables = Path(folder) / "env"
        script = PROJECT / "deploy" / "docker" / "local-base.sh"
        subprocess.run([script, "--env", variables], check=True)
        values = dict(line.split("=", 1) for line in variables.read_text().splitlines())
        names = " ".join(packages((PROJECT / "README.md").read_text()))
        subprocess.run(
            [  # noqa: S607
                "docker",
                "build",
                "--quiet",
                "--network",
                "host",
                "--tag",
                IMAGE,
                "--file",
                "-",
                "--build-arg",
                f"BASE={values['TRITONKIT_BASE']}",
                "--build-arg",
                f"PACKAGES={names}",
                folder,
            ],
            input=DOCKERFILE,
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return IMAGE


def run(command: str) -> int:
    """Run a command in a copy of the checkout, in a container that is gone afterwards."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    settings = pip_settings(listed)
    words = ["docker", "run", "--rm", "--init", "--interactive", "--network", "host", "--shm-size", "2g"]
    for name, value in settings.items():
        words += ["--env", f"{name}={value}"]
    for place in sorted(local_places(settings)):
        words += ["--volume", f"{place}:{place}:ro"]
    unpack = f"mkdir /tritonkit && cd /tritonkit && tar -x && {{ {command}; }}"
    checkout = "git ls-files -z -co --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -c -T -"
    with subprocess.Popen(
        ["bash", "-c", checkout],  # noqa: S607
        cwd=PROJECT,
        stdout=subprocess.PIPE,
    ) as files:
        return subprocess.run([*words, image(), "sh", "-ec", unpack], stdin=files.stdout).returncode


if __name__ == "__main__":
    raise SystemExit(run(" ".join(sys.argv[1:]) or COMMAND))
