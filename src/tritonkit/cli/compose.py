"""`tritonkit compose`: the project in containers."""

from __future__ import annotations

from tritonkit.cli.manifests import write_resources
from tritonkit.cli.options import AsJson, Root, project_folder
from tritonkit.cli.output import note, print_json

__all__ = ["command"]


def command(as_json: AsJson = False, root: Root = None) -> None:
    """Write docker-compose.yml and what its images are built from, so that `docker compose up` serves this project.

    The compose file is yours and is never overwritten; deploy/tritonkit/ is replaced, after an upgrade too.

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
    note("next: docker compose up --wait")
