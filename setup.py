"""The wheel carries the top-level folders that a project outside of a clone needs as data of the package.

All else is in pyproject.toml. `tritonkit.resources` finds what is written here.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CARRIED = (
    "deploy/docker", "deploy/prometheus", "docker-compose.yml", "loadtest",
    "python_backends", "pyproject.toml", "README.md", "LICENSE",
)  # fmt: skip
# Keys and wheels of this machine, and what `tritonkit manifests` computes for the models of the clone.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "admin-key", "*.whl", "resources.yml", "*.so")


class BuildWithData(build_py):
    """Copies the carried folders; an editable install uses those of the clone."""

    def run(self) -> None:
        """Build the package, then add its data."""
        super().run()
        if self.editable_mode:
            return
        data = Path(self.build_lib) / "tritonkit" / "_data"
        shutil.rmtree(data, ignore_errors=True)  # of an earlier build
        for name in CARRIED:
            source, target = ROOT / name, data / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_LEFT_OUT)
            elif source.is_file():
                shutil.copyfile(source, target)


setup(cmdclass={"build_py": BuildWithData})
