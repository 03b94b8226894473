"""`tritonkit compose`: the project in containers."""

from __future__ import annotations

import shutil
import subprocess

from tritonkit.cli.options import AsJson, Root, project_folder
from tritonkit.cli.output import note, print_json
from tritonkit.operate.commands.manifests import write_resources

__all__ = ["command"]

_DOCKER_S = 10.0


def command(as_json: AsJson = False, root: Root = None) -> None:
    """Write docker-compose.yml and the sources of its images, so that `docker compose up` serves this project.

    Compose files, deploy/alertmanager/ and deploy/collector/ are yours and never overwritten. deploy/tritonkit/ is
    replaced by each run, also after an upgrade.

    Example: tritonkit compose && docker compose up --wait
    """
    from tritonkit.serve.compose import write_compose

    project = project_folder(root)
    written = write_compose(project)
    written.append(write_resources(project))
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        note(f"wrote {path.relative_to(project)}")
    for missing in _missing():
        note(missing)
    note("next: docker compose up --wait")


def _missing() -> list[str]:
    """The programs that this machine lacks to start it, and the remedy; the files may be for another machine."""
    docker = shutil.which("docker")
    if docker is None:
        return ["docker: it is not installed here; Debian: apt-get install docker.io docker-compose"]
    try:
        done = subprocess.run([docker, "info"], capture_output=True, timeout=_DOCKER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ["docker: it does not answer; docs/docker.md has what to do"]
    if done.returncode:
        return ["docker: its daemon does not answer this user; systemctl start docker, and docs/docker.md"]
    return []
