"""The tree of files: rendered from templates, checked, compared with the disk, written."""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import yaml

from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import RenderError
from tritonkit.operate.deploy.facts import Facts
from tritonkit.text import first_line

if TYPE_CHECKING:
    from tritonkit.operate.deploy.values import Values

__all__ = ["Changes", "compare", "render_tree", "write_tree"]

_SUFFIX = ".j2"
_HEADER = re.compile(
    r"# Written by `tritonkit deploy` \(sha256 ([0-9a-f]{16})\)\.\n"
    r"# Do not edit: change values\.yaml and run it again\.\n"
)


@dataclass(frozen=True)
class Changes:
    """Differences between a folder and a tree.

    Attributes:
        differing: path -> unified diff from the file on disk to the rendered one.
        edited: the differing files that a person has changed, or that `tritonkit deploy` did not write.
        left: files that `tritonkit deploy` wrote before and that the tree no longer has.
    """

    differing: dict[str, str] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.differing or self.left)


def render_tree(values: Values, facts: Facts) -> dict[str, str]:
    """Every file but values.yaml: path below the tree -> text.

    Raises:
        RenderError: a template does not render, or its result is not YAML.
    """
    values = values.model_copy(update={"replicas": values.replicas or facts.replicas})
    folder = Path(str(files("tritonkit.operate.deploy"))) / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 (YAML, from checked values)  # nosec B701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["canary"] = _of_canary
    environment.filters["yaml"] = lambda value: yaml.safe_dump(value, sort_keys=False).rstrip()

    def pod_of(pod_values: Values) -> dict[str, Any]:
        """The pod of base/deployment.yaml."""
        text = environment.get_template("base/deployment.yaml.j2").render(values=pod_values, facts=facts)
        spec: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
        return spec

    environment.globals["pod_of"] = pod_of
    tree = {}
    for file in sorted(folder.rglob(f"*{_SUFFIX}")):
        name = file.relative_to(folder).as_posix()
        path = name.removesuffix(_SUFFIX)
        try:
            text = environment.get_template(name).render(values=values, facts=facts)
            if not text.strip():  # what values.yaml does not ask for
                continue
            documents = list(yaml.safe_load_all(text))
        except (jinja2.TemplateError, yaml.YAMLError) as error:
            raise RenderError(path, found=f"it cannot be rendered: {first_line(error)}") from error
        if not documents or not all(isinstance(one, dict) and "kind" in one for one in documents):
            raise RenderError(path, found="no Kubernetes resource in it")
        tree[path] = _header(text) + text
    return tree


def compare(out: Path, tree: dict[str, str]) -> Changes:
    """Compare a folder with a tree."""
    differing: dict[str, str] = {}
    edited: list[str] = []
    for path, rendered in tree.items():
        on_disk = _read(out / path)
        if on_disk == rendered:
            continue
        lines = difflib.unified_diff(
            (on_disk or "").splitlines(keepends=True),
            rendered.splitlines(keepends=True),
            f"{path} (there)",
            f"{path} (rendered)",
        )
        differing[path] = "".join(lines)
        if on_disk is not None and not _untouched(on_disk):
            edited.append(path)
    left = [
        path
        for file in sorted(out.rglob("*.yaml"))
        if (path := file.relative_to(out).as_posix()) not in tree and _untouched(_read(file) or "")
    ]
    return Changes(differing, tuple(edited), tuple(left))


def write_tree(out: Path, tree: dict[str, str], *, force: bool = False) -> list[Path]:
    """Write files that differ, remove those that the tree no longer has, and return the files written.

    Raises:
        RenderError: files were edited by hand, and `force` is false; the folder cannot be written.
    """
    changes = compare(out, tree)
    if changes.edited and not force:
        raise RenderError(
            str(out),
            found=f"edited by hand: {', '.join(changes.edited)}",
            wanted="changes in values.yaml, or in an overlay of your own",
            todo="tritonkit deploy --check shows them; --force writes over them",
        )
    written = []
    try:
        for path in changes.differing:
            file = out / path
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, tree[path].encode())
            written.append(file)
        for path in changes.left:
            (out / path).unlink()
    except OSError as error:
        raise unwritable(out, error, RenderError) from error
    return written


def _of_canary(text: str) -> str:
    """A resource of Triton turned into the canary's: with its own names, and labels that keep the two apart."""
    pattern = r"^(metadata:\n  name: |.*app\.kubernetes\.io/name: )triton(-clusterip)?$"
    return re.sub(pattern, r"\1triton-canary\2", text, flags=re.MULTILINE)


def _header(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"# Written by `tritonkit deploy` (sha256 {digest}).\n# Do not edit: change values.yaml and run it again.\n"


def _untouched(text: str) -> bool:
    """Whether a file is as `tritonkit deploy` wrote it once."""
    header = _HEADER.match(text)
    return bool(header) and _header(text[header.end() :]) == header.group()  # type: ignore[union-attr]


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RenderError(
            str(file), found=f"it cannot be read: {first_line(error)}", wanted="a file in UTF-8"
        ) from error
