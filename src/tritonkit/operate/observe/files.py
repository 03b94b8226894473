"""The generated files below `deploy/`: written, or compared with a fresh render."""

from __future__ import annotations

from pathlib import Path

from tritonkit.disk import unwritable
from tritonkit.errors import RenderError
from tritonkit.operate.observe.alerts import ALERTS
from tritonkit.operate.observe.grafana import dashboard_text, provisioning
from tritonkit.operate.observe.panels import SECTIONS
from tritonkit.operate.observe.rules import rules_text

__all__ = ["differing", "texts", "write"]

_GRAFANA = Path("grafana")


def texts() -> dict[Path, str]:
    """The text of each file, by its path below `deploy/`."""
    files = {
        Path("prometheus") / "alerts.yml": rules_text(ALERTS),
        _GRAFANA / "dashboards" / "tritonkit.json": dashboard_text(SECTIONS),
    }
    return files | {_GRAFANA / "provisioning" / name: text for name, text in provisioning().items()}


def differing(folder: Path) -> list[Path]:
    """The files below a folder that differ from a fresh render or are missing.

    Raises:
        RenderError: a file cannot be read.
    """
    return [folder / path for path, text in texts().items() if _read(folder / path) != text]


def write(folder: Path) -> list[Path]:
    """Write the files that differ, and return them.

    Raises:
        RenderError: the folder cannot be written.
    """
    fresh, changed = texts(), differing(folder)
    for file in changed:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(fresh[file.relative_to(folder)], encoding="utf-8")
        except OSError as error:
            raise unwritable(file, error, RenderError) from error
    return changed


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RenderError(
            str(file), found=f"it cannot be read: {getattr(error, 'strerror', None) or 'no UTF-8'}"
        ) from error
